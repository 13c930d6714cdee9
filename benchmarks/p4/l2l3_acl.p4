// SPDX-License-Identifier: Apache-2.0
// L2L3-ACL: a switch with VLANs that routes between them, an access list, and packet counters of its ports.
#include "headers.p4"

struct headers_t {
    ethernet_h ethernet;
    vlan_h vlan;
    ipv4_h ipv4;
    l4_ports_h l4;
}

struct metadata_t {}

parser Parse(packet_in packet, out headers_t hdr, inout metadata_t md, inout standard_metadata_t standard) {
    state start {
        packet.extract(hdr.ethernet);
        transition select(hdr.ethernet.type) {
            ETHERTYPE_VLAN: parse_vlan;
            ETHERTYPE_IPV4: parse_ipv4;
            default: accept;
        }
    }

    state parse_vlan {
        packet.extract(hdr.vlan);
        transition select(hdr.vlan.type) {
            ETHERTYPE_IPV4: parse_ipv4;
            default: accept;
        }
    }

    state parse_ipv4 {
        packet.extract(hdr.ipv4);
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
    @name(".packets_in")
    counter<port_t>(PORTS, CounterType.packets) packets_in;

    action drop() {
        mark_to_drop(standard);
    }

    action permit() {}

    action tag(vlan_t vlan) {
        hdr.vlan.setValid();
        hdr.vlan.id = vlan;
        hdr.vlan.type = hdr.ethernet.type;
        hdr.ethernet.type = ETHERTYPE_VLAN;
    }

    action next_hop(mac_t src, mac_t dst, vlan_t vlan) {
        hdr.ethernet.src = src;
        hdr.ethernet.dst = dst;
        hdr.vlan.id = vlan;
        hdr.ipv4.ttl = hdr.ipv4.ttl - 1;
    }

    action forward(port_t port) {
        standard.egress_spec = port;
    }

    /* The VLAN of untagged packets. */
    @name(".port_vlans")
    table port_vlans {
        key = { standard.ingress_port: exact @name("ingress_port"); }
        actions = { tag; drop; }
        default_action = drop();
        size = PORTS;
    }

    /* Addresses of this router. Other packets stay in their VLAN. */
    @name(".routable")
    table routable {
        key = {
            hdr.ethernet.dst: exact @name("destination");
            hdr.vlan.id: exact @name("vlan");
        }
        actions = { permit; NoAction; }
        default_action = NoAction();
        size = 1024;
    }

    @name(".routes")
    table routes {
        key = { hdr.ipv4.dst: lpm @name("destination"); }
        actions = { next_hop; drop; }
        default_action = drop();
        size = 1024;
    }

    @name(".stations")
    table stations {
        key = {
            hdr.ethernet.dst: exact @name("destination");
            hdr.vlan.id: exact @name("vlan");
        }
        actions = { forward; drop; }
        default_action = drop();
        size = 1024;
    }

    @name(".acl")
    table acl {
        key = {
            hdr.ipv4.src: exact @name("source");
            hdr.ipv4.dst: exact @name("destination");
            hdr.ipv4.protocol: exact @name("protocol");
            hdr.l4.src: exact @name("source_port");
            hdr.l4.dst: exact @name("destination_port");
        }
        actions = { permit; drop; }
        default_action = permit();
        size = 1024;
    }

    apply {
        packets_in.count(standard.ingress_port);
        if (!hdr.vlan.isValid()) {
            port_vlans.apply();
            if (!hdr.vlan.isValid()) {
                exit;
            }
        }
        if (hdr.ipv4.isValid() && routable.apply().hit) {
            if (hdr.ipv4.ttl <= 1 || !routes.apply().hit) {
                drop();
                exit;
            }
        }
        stations.apply();
        if (hdr.l4.isValid()) {
            acl.apply();
        }
    }
}

control Outward(inout headers_t hdr, inout metadata_t md, inout standard_metadata_t standard) {
    @name(".packets_out")
    counter<port_t>(PORTS, CounterType.packets) packets_out;

    action untag() {
        hdr.ethernet.type = hdr.vlan.type;
        hdr.vlan.setInvalid();
    }

    @name(".egress_vlans")
    table egress_vlans {
        key = { standard.egress_port: exact @name("egress_port"); }
        actions = { untag; NoAction; }
        default_action = NoAction();
        size = PORTS;
    }

    apply {
        egress_vlans.apply();
        packets_out.count(standard.egress_port);
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
