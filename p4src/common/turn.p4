// SPDX-License-Identifier: Apache-2.0
// Turning a packet round: what every answer to its sender has in common.
#ifndef RAILWEAVE_TURN_P4
#define RAILWEAVE_TURN_P4

/* Sends the frame back out of the port that it came in by, from the address that it was sent to. */
action turn_frame(inout headers_t hdr, inout metadata_t md) {
    hdr.ethernet.dst = hdr.ethernet.src;
    hdr.ethernet.src = md.virtual_mac;
    md.verdict = VERDICT_UNICAST;
    md.port = md.ingress_port;
}

/* The same for an IPv4 packet. */
action turn_packet(inout headers_t hdr, inout metadata_t md) {
    turn_frame(hdr, md);
    ipv4_t sender = hdr.ipv4.src;
    hdr.ipv4.src = hdr.ipv4.dst;
    hdr.ipv4.dst = sender;
    hdr.ipv4.ttl = TTL;
    md.rewritten = 1;
}

/* The same for a UDP datagram. Its checksum is left out: that is cheaper than a sum over all lanes. */
action turn_datagram(inout headers_t hdr, inout metadata_t md) {
    turn_packet(hdr, md);
    bit<16> sender = hdr.udp.src_port;
    hdr.udp.src_port = hdr.udp.dst_port;
    hdr.udp.dst_port = sender;
    hdr.udp.checksum = 0;
}

#endif
