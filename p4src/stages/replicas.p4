// SPDX-License-Identifier: Apache-2.0
// The way down the tree (egress): addresses each copy of a result to the child that it is for.

control Replicas(inout headers_t hdr, inout metadata_t md) {
    @name(".to_child")
    action to_child(bit<8> child, mac_t src_mac, mac_t dst_mac, ipv4_t src_ip, ipv4_t dst_ip, bit<16> udp_port) {
        md.rewritten = 1;
        hdr.ina.child = child;
        hdr.ethernet.src = src_mac;
        hdr.ethernet.dst = dst_mac;
        hdr.ipv4.src = src_ip;
        hdr.ipv4.dst = dst_ip;
        hdr.ipv4.ttl = TTL;
        hdr.udp.src_port = INA_UDP_PORT;
        hdr.udp.dst_port = udp_port;
        hdr.udp.checksum = 0;
    }

    @name(".no_child")
    action no_child() {
        md.lost = 1;
    }

    @name(".replicas")
    table replicas {
        key = {
            hdr.ina.group: exact @name("group");
            md.egress_rid: exact @name("egress_rid");
        }
        actions = { to_child; @defaultonly no_child; }
        default_action = no_child();
        size = MAX_MEMBERS;
    }

    apply {
        replicas.apply();
    }
}
