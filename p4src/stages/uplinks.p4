// SPDX-License-Identifier: Apache-2.0
// The way up the tree: makes the packet this switch's own contribution at its parent.

control Uplinks(inout headers_t hdr, inout metadata_t md) {
    @name(".uplink")
    action uplink(port_t port, bit<8> child, mac_t src_mac, mac_t dst_mac, ipv4_t src_ip, ipv4_t dst_ip) {
        md.verdict = VERDICT_UNICAST;
        md.port = port;
        md.rewritten = 1;
        hdr.ina.child = child;
        hdr.ethernet.src = src_mac;
        hdr.ethernet.dst = dst_mac;
        hdr.ipv4.src = src_ip;
        hdr.ipv4.dst = dst_ip;
        hdr.ipv4.ttl = TTL;
        hdr.udp.src_port = INA_UDP_PORT;
        hdr.udp.dst_port = INA_UDP_PORT;
        hdr.udp.checksum = 0;
    }

    @name(".no_uplink")
    action no_uplink() {
        md.verdict = VERDICT_DROP;
    }

    @name(".uplinks")
    table uplinks {
        key = { hdr.ina.group: exact @name("group"); }
        actions = { uplink; @defaultonly no_uplink; }
        default_action = no_uplink();
        size = MAX_GROUPS;
    }

    apply {
        uplinks.apply();
    }
}
