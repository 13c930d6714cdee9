// SPDX-License-Identifier: Apache-2.0
// Headers in the order of the wire.
#ifndef RAILWEAVE_HEADERS_P4
#define RAILWEAVE_HEADERS_P4

const bit<16> ETHERTYPE_IPV4 = 0x0800;
const bit<16> ETHERTYPE_ARP = 0x0806;
const bit<8> PROTOCOL_ICMP = 1;
const bit<8> PROTOCOL_UDP = 17;
const bit<16> ARP_ETHERNET = 1;
const bit<16> ARP_REQUEST = 1;
const bit<16> ARP_REPLY = 2;
const bit<8> ICMP_ECHO_REQUEST = 8;
const bit<8> ICMP_ECHO_REPLY = 0;

/* Lengths that a packet's IPv4 and UDP headers must give: at least, or of one with all its lanes. */
const bit<16> IPV4_HEADER_BYTES = 20;
const bit<16> UDP_HEADER_BYTES = 8;
const bit<16> PROBE_UDP_BYTES = UDP_HEADER_BYTES + INA_HEADER_BYTES;  // at least
const bit<16> SPREAD_UDP_BYTES = PROBE_UDP_BYTES + 1;                 // at least
const bit<16> BARE_UDP_BYTES = PROBE_UDP_BYTES;                       // without lanes
const bit<16> CHUNK_UDP_BYTES = PROBE_UDP_BYTES + 4 * LANES;
const bit<16> BARE_IPV4_BYTES = IPV4_HEADER_BYTES + BARE_UDP_BYTES;
const bit<16> CHUNK_IPV4_BYTES = IPV4_HEADER_BYTES + CHUNK_UDP_BYTES;

const bit<8> TTL = 64;  // of packets that this switch makes

header ethernet_h {
    mac_t dst;
    mac_t src;
    bit<16> type;
}

header arp_h {
    bit<16> hardware;
    bit<16> protocol;
    bit<8> hardware_bytes;
    bit<8> protocol_bytes;
    bit<16> operation;
    mac_t sender_mac;
    ipv4_t sender_ip;
    mac_t target_mac;
    ipv4_t target_ip;
}

header ipv4_h {
    bit<4> version;
    bit<4> header_words;
    bit<8> tos;
    bit<16> total_length;
    bit<16> identification;
    bit<1> reserved;
    bit<1> dont_fragment;
    bit<1> more_fragments;
    bit<13> fragment_offset;
    bit<8> ttl;
    bit<8> protocol;
    bit<16> checksum;
    ipv4_t src;
    ipv4_t dst;
}

header icmp_h {
    bit<8> type;
    bit<8> code;
    bit<16> checksum;
}

header udp_h {
    bit<16> src_port;
    bit<16> dst_port;
    bit<16> length;
    bit<16> checksum;
}

header ina_h {
    bit<4> version;
    bit<4> kind;
    bit<8> op;
    group_t group;
    bit<8> child;
    bit<8> flags;
    bit<16> slot;
    bit<32> round;
    bit<32> mark;
}

#define LANE_FIELD(n) lane_t lane_##n;
header lanes_h {
    FOR_EACH_LANE(LANE_FIELD)
}

/* What an IPv4 header's checksum covers. */
#define IPV4_FIELDS(h) { h.version, h.header_words, h.tos, h.total_length, h.identification, h.reserved, \
    h.dont_fragment, h.more_fragments, h.fragment_offset, h.ttl, h.protocol, h.src, h.dst }

#endif
