// SPDX-License-Identifier: Apache-2.0
// Egress: addresses each copy of a packet to the one in the tree that it is for, a child or the parent.

control Replicas(inout headers_t hdr, inout metadata_t md) {
    @name(".readdress")
    action readdress(bit<8> child, mac_t src_mac, mac_t dst_mac, ipv4_t src_ip, ipv4_t dst_ip, bit<16> udp_port) {
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

    @name(".nobody")
    action nobody() {
        md.lost = 1;
    }

    @name(".replicas")
    table replicas {
        key = {
            hdr.ina.group: exact @name("group");
            md.egress_rid: exact @name("egress_rid");
        }
        actions = { readdress; @defaultonly nobody; }
        default_action = nobody();
        size = MAX_MEMBERS;
    }

    apply {
        replicas.apply();
    }
}
