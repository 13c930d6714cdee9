// SPDX-License-Identifier: Apache-2.0
// UPF: the user plane of a 5G core, towards the users. The rules of 3GPP TS 29.244 find the user's session, the
// detection rule (PDR) and the forwarding action (FAR). GTP-U (3GPP TS 29.281) carries packets to the base station.
#include "headers.p4"

typedef bit<8> interface_t;  // access, core, ...: 3GPP TS 29.244, 8.2.2
typedef bit<32> session_t;
typedef bit<32> far_t;

const bit<16> GTPU_PORT = 2152;
const bit<8> GTPU_PDU = 255;
const bit<16> IPV4_BYTES = 20;
const bit<16> UDP_BYTES = 8;
const bit<16> GTPU_BYTES = 8;
const bit<8> TTL = 64;

header udp_h {
    bit<16> src_port;
    bit<16> dst_port;
    bit<16> length;
    bit<16> checksum;
}

header gtpu_h {
    bit<3> version;
    bit<1> protocol_type;
    bit<4> flags;
    bit<8> type;
    bit<16> length;
    bit<32> teid;
}

struct headers_t {
    ethernet_h ethernet;
    ipv4_h outer_ipv4;
    udp_h outer_udp;
    gtpu_h gtpu;
    ipv4_h ipv4;
    l4_ports_h l4;
}

struct metadata_t {
    interface_t from;
    interface_t to;
    session_t session;
    far_t far;
    ipv4_t next;  // the destination address that routes the packet
}

parser Parse(packet_in packet, out headers_t hdr, inout metadata_t md, inout standard_metadata_t standard) {
    state start {
        packet.extract(hdr.ethernet);
        transition select(hdr.ethernet.type) {
            ETHERTYPE_IPV4: parse_ipv4;
            default: accept;
        }
    }

    state parse_ipv4 {
        packet.extract(hdr.ipv4);
        md.next = hdr.ipv4.dst;
        transition select(hdr.ipv4.header_words, hdr.ipv4.fragment_offset, hdr.ipv4.protocol) {
            (5, 0, PROTOCOL_TCP): parse_l4;
            (5, 0, PROTOCOL_UDP): parse_l4;
            default: accept;
        }
    }

    state parse_l4 {
        packet.extract(hdr.l4);
        transition accept;
    }
}

control Verify(inout headers_t hdr, inout metadata_t md) {
    apply {}
}

control Inward(inout headers_t hdr, inout metadata_t md, inout standard_metadata_t standard) {
    action drop() {
        mark_to_drop(standard);
    }

    action set_source(interface_t from) {
        md.from = from;
    }

    action set_session(session_t session) {
        md.session = session;
    }

    action set_far(far_t far) {
        md.far = far;
    }

    action encapsulate(interface_t to, bit<32> teid, ipv4_t src, ipv4_t dst) {
        md.to = to;
        md.next = dst;
        hdr.gtpu.setValid();
        hdr.gtpu.version = 1;
        hdr.gtpu.protocol_type = 1;
        hdr.gtpu.type = GTPU_PDU;
        hdr.gtpu.length = hdr.ipv4.total_length;
        hdr.gtpu.teid = teid;
        hdr.outer_udp.setValid();
        hdr.outer_udp.src_port = GTPU_PORT;
        hdr.outer_udp.dst_port = GTPU_PORT;
        hdr.outer_udp.length = hdr.ipv4.total_length + (UDP_BYTES + GTPU_BYTES);
        hdr.outer_ipv4.setValid();
        hdr.outer_ipv4.version = 4;
        hdr.outer_ipv4.header_words = 5;
        hdr.outer_ipv4.dscp = hdr.ipv4.dscp;
        hdr.outer_ipv4.total_length = hdr.ipv4.total_length + (IPV4_BYTES + UDP_BYTES + GTPU_BYTES);
        hdr.outer_ipv4.ttl = TTL;
        hdr.outer_ipv4.protocol = PROTOCOL_UDP;
        hdr.outer_ipv4.src = src;
        hdr.outer_ipv4.dst = dst;
    }

    action pass(interface_t to) {
        md.to = to;
    }

    action next_hop(mac_t src, mac_t dst, port_t port) {
        hdr.ethernet.src = src;
        hdr.ethernet.dst = dst;
        hdr.ipv4.ttl = hdr.ipv4.ttl - 1;
        standard.egress_spec = port;
    }

    @name(".source_interfaces")
    table source_interfaces {
        key = { standard.ingress_port: exact @name("ingress_port"); }
        actions = { set_source; drop; }
        default_action = drop();
        size = PORTS;
    }

    @name(".sessions")
    table sessions {
        key = { hdr.ipv4.dst: exact @name("user"); }
        actions = { set_session; drop; }
        default_action = drop();
        size = 1024;
    }

    @name(".pdrs")
    table pdrs {
        key = {
            md.session: exact @name("session");
            hdr.ipv4.src: ternary @name("source");
            hdr.ipv4.dst: ternary @name("destination");
            hdr.ipv4.protocol: ternary @name("protocol");
            hdr.l4.src: ternary @name("source_port");
            hdr.l4.dst: ternary @name("destination_port");
            md.from: exact @name("source_interface");
        }
        actions = { set_far; drop; }
        default_action = drop();
        size = 1024;
    }

    @name(".fars")
    table fars {
        key = { md.far: exact @name("far"); }
        actions = { encapsulate; pass; drop; }
        default_action = drop();
        size = 1024;
    }

    @name(".routes")
    table routes {
        key = {
            md.to: exact @name("interface");
            md.next: lpm @name("destination");
        }
        actions = { next_hop; drop; }
        default_action = drop();
        size = 1024;
    }

    apply {
        if (hdr.ipv4.isValid() && hdr.ipv4.ttl > 1 && source_interfaces.apply().hit && sessions.apply().hit
            && pdrs.apply().hit && fars.apply().hit) {
            routes.apply();
        } else {
            drop();
        }
    }
}

control Outward(inout headers_t hdr, inout metadata_t md, inout standard_metadata_t standard) {
    apply {}
}

control Compute(inout headers_t hdr, inout metadata_t md) {
    apply {
        update_checksum(hdr.ipv4.isValid() && hdr.ipv4.header_words == 5,
                        IPV4_FIELDS(hdr.ipv4), hdr.ipv4.checksum, HashAlgorithm.csum16);
        update_checksum(hdr.outer_ipv4.isValid(),
                        IPV4_FIELDS(hdr.outer_ipv4), hdr.outer_ipv4.checksum, HashAlgorithm.csum16);
    }
}

control Deparse(packet_out packet, in headers_t hdr) {
    apply {
        packet.emit(hdr);
    }
}

V1Switch(Parse(), Verify(), Inward(), Outward(), Compute(), Deparse()) main;
