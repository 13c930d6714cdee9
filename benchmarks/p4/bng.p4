// SPDX-License-Identifier: Apache-2.0
// BNG: a broadband network gateway, towards the subscribers. A line is a pair of VLAN tags. Packets to a subscriber get
// both tags and the PPPoE session (RFC 2516) of the line, and a meter limits the rate of the line.
#include "headers.p4"

#define LINES 1024

typedef bit<32> line_t;

const bit<16> ETHERTYPE_PPPOE = 0x8864;
const bit<16> PPP_IPV4 = 0x0021;
const bit<2> FORWARD_BRIDGE = 0;
const bit<2> FORWARD_ROUTE = 2;
const bit<32> RED = 2;

header pppoe_h {
    bit<4> version;
    bit<4> type;
    bit<8> code;
    bit<16> session;
    bit<16> length;
    bit<16> protocol;  // of PPP
}

struct headers_t {
    ethernet_h ethernet;
    vlan_h vlan;
    vlan_h inner_vlan;
    pppoe_h pppoe;
    ipv4_h ipv4;
}

struct metadata_t {
    bit<16> ip_type;   // EtherType behind the tags
    bit<2> forwarding;
    bit<1> routed;
    vlan_t vlan;       // of the packet as it leaves: service tag
    vlan_t inner_vlan; // customer tag
    line_t line;
    bit<16> session;
    bit<32> color;
}

parser Parse(packet_in packet, out headers_t hdr, inout metadata_t md, inout standard_metadata_t standard) {
    state start {
        packet.extract(hdr.ethernet);
        md.ip_type = hdr.ethernet.type;
        transition select(hdr.ethernet.type) {
            ETHERTYPE_VLAN: parse_vlan;
            ETHERTYPE_SERVICE_VLAN: parse_vlan;
            ETHERTYPE_IPV4: parse_ipv4;
            default: accept;
        }
    }

    state parse_vlan {
        packet.extract(hdr.vlan);
        md.ip_type = hdr.vlan.type;
        transition select(hdr.vlan.type) {
            ETHERTYPE_VLAN: parse_inner_vlan;
            ETHERTYPE_IPV4: parse_ipv4;
            default: accept;
        }
    }

    state parse_inner_vlan {
        packet.extract(hdr.inner_vlan);
        md.ip_type = hdr.inner_vlan.type;
        transition select(hdr.inner_vlan.type) {
            ETHERTYPE_IPV4: parse_ipv4;
            default: accept;
        }
    }

    state parse_ipv4 {
        packet.extract(hdr.ipv4);
        transition accept;
    }
}

control Verify(inout headers_t hdr, inout metadata_t md) {
    apply {}
}

control Inward(inout headers_t hdr, inout metadata_t md, inout standard_metadata_t standard) {
    @name(".line_packets")
    counter<line_t>(LINES, CounterType.packets) line_packets;
    @name(".best_effort")
    meter<line_t>(LINES, MeterType.bytes) best_effort;
    @name(".priority")
    meter<line_t>(LINES, MeterType.bytes) priority;

    action drop() {
        mark_to_drop(standard);
    }

    action permit(vlan_t vlan) {
        md.vlan = vlan;
    }

    action set_forwarding(bit<2> forwarding) {
        md.forwarding = forwarding;
    }

    action next_hop(mac_t src, mac_t dst, port_t port) {
        hdr.ethernet.src = src;
        hdr.ethernet.dst = dst;
        hdr.ipv4.ttl = hdr.ipv4.ttl - 1;
        md.routed = 1;
        standard.egress_spec = port;
    }

    action set_tags(vlan_t vlan, vlan_t inner_vlan) {
        md.vlan = vlan;
        md.inner_vlan = inner_vlan;
    }

    action set_line(line_t line) {
        md.line = line;
    }

    action set_session(bit<16> session) {
        md.session = session;
    }

    action meter_best_effort() {
        best_effort.execute_meter(md.line, md.color);
    }

    action meter_priority() {
        priority.execute_meter(md.line, md.color);
    }

    @name(".ingress_vlans")
    table ingress_vlans {
        key = {
            standard.ingress_port: exact @name("ingress_port");
            hdr.vlan.id: ternary @name("vlan");
            hdr.inner_vlan.id: ternary @name("inner_vlan");
        }
        actions = { permit; drop; }
        default_action = drop();
        size = 1024;
    }

    @name(".forwarding_types")
    table forwarding_types {
        key = {
            hdr.ethernet.dst: ternary @name("destination");
            standard.ingress_port: exact @name("ingress_port");
            hdr.ethernet.type: ternary @name("type");
            md.ip_type: exact @name("ip_type");
        }
        actions = { set_forwarding; }
        default_action = set_forwarding(FORWARD_BRIDGE);
        size = 1024;
    }

    @name(".routes")
    table routes {
        key = { hdr.ipv4.dst: lpm @name("destination"); }
        actions = { next_hop; drop; }
        default_action = drop();
        size = 1024;
    }

    @name(".next_tags")
    table next_tags {
        key = { standard.egress_spec: exact @name("egress_port"); }
        actions = { set_tags; NoAction; }
        default_action = NoAction();
        size = PORTS;
    }

    @name(".lines")
    table lines {
        key = {
            md.vlan: exact @name("vlan");
            md.inner_vlan: exact @name("inner_vlan");
        }
        actions = { set_line; NoAction; }
        default_action = NoAction();
        size = LINES;
    }

    @name(".line_sessions")
    table line_sessions {
        key = { md.line: exact @name("line"); }
        actions = { set_session; drop; }
        default_action = drop();
        size = LINES;
    }

    @name(".traffic_classes")
    table traffic_classes {
        key = {
            md.line: ternary @name("line");
            hdr.ipv4.src: ternary @name("source");
            hdr.ipv4.dscp: ternary @name("dscp");
        }
        actions = { meter_priority; meter_best_effort; }
        default_action = meter_best_effort();
        size = 1024;
    }

    apply {
        if (!ingress_vlans.apply().hit) {
            exit;
        }
        forwarding_types.apply();
        if (md.forwarding != FORWARD_ROUTE || !hdr.ipv4.isValid() || hdr.ipv4.ttl <= 1) {
            drop();
            exit;
        }
        routes.apply();
        if (md.routed == 1) {
            next_tags.apply();
            if (lines.apply().hit && line_sessions.apply().hit) {
                line_packets.count(md.line);
                traffic_classes.apply();
                if (md.color == RED) {
                    drop();
                }
            }
        }
    }
}

control Outward(inout headers_t hdr, inout metadata_t md, inout standard_metadata_t standard) {
    action pop() {
        hdr.vlan.setInvalid();
        hdr.inner_vlan.setInvalid();
        hdr.ethernet.type = ETHERTYPE_IPV4;
    }

    action push() {
        hdr.ethernet.type = ETHERTYPE_SERVICE_VLAN;
        hdr.vlan.setValid();
        hdr.vlan.id = md.vlan;
        hdr.vlan.type = ETHERTYPE_VLAN;
        hdr.inner_vlan.setValid();
        hdr.inner_vlan.id = md.inner_vlan;
        hdr.inner_vlan.type = ETHERTYPE_IPV4;
    }

    @name(".egress_vlans")
    table egress_vlans {
        key = { standard.egress_port: exact @name("egress_port"); }
        actions = { push; pop; }
        default_action = pop();
        size = PORTS;
    }

    apply {
        egress_vlans.apply();
        if (md.session != 0 && hdr.inner_vlan.isValid()) {
            hdr.inner_vlan.type = ETHERTYPE_PPPOE;
            hdr.pppoe.setValid();
            hdr.pppoe.version = 1;
            hdr.pppoe.type = 1;
            hdr.pppoe.session = md.session;
            hdr.pppoe.length = hdr.ipv4.total_length + 2;
            hdr.pppoe.protocol = PPP_IPV4;
        }
    }
}

control Compute(inout headers_t hdr, inout metadata_t md) {
    apply {
        update_checksum(hdr.ipv4.isValid() && hdr.ipv4.header_words == 5,
                        IPV4_FIELDS(hdr.ipv4), hdr.ipv4.checksum, HashAlgorithm.csum16);
    }
}

control Deparse(packet_out packet, in headers_t hdr) {
    apply {
        packet.emit(hdr);
    }
}

V1Switch(Parse(), Verify(), Inward(), Outward(), Compute(), Deparse()) main;
