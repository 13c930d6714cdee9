// SPDX-License-Identifier: Apache-2.0
// Turns a packet round: every answer leaves by the port that the question came in by.

control Turn(inout headers_t hdr, inout metadata_t md) {
    action turn_frame() {
        md.verdict = VERDICT_UNICAST;
        md.port = md.ingress_port;
        hdr.ethernet.dst = hdr.ethernet.src;
        hdr.ethernet.src = md.virtual_mac;
    }

    action turn_packet() {
        ipv4_t sender = hdr.ipv4.src;
        hdr.ipv4.src = hdr.ipv4.dst;
        hdr.ipv4.dst = sender;
        hdr.ipv4.ttl = TTL;
        md.rewritten = 1;
    }

    action turn_datagram() {
        bit<16> sender_port = hdr.udp.src_port;
        hdr.udp.src_port = hdr.udp.dst_port;
        hdr.udp.dst_port = sender_port;
        hdr.udp.checksum = 0;  // none, which is cheaper than a sum over all lanes
    }

    apply {
        turn_frame();
        if (hdr.ipv4.isValid()) {
            turn_packet();
        }
        if (hdr.udp.isValid()) {
            turn_datagram();
        }
    }
}
