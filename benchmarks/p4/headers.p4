// SPDX-License-Identifier: Apache-2.0
// Types and headers that the four programs share.
#ifndef BENCHMARK_HEADERS_P4
#define BENCHMARK_HEADERS_P4

#define V1MODEL_VERSION 20200408
#include <core.p4>
#include <v1model.p4>

typedef bit<48> mac_t;
typedef bit<32> ipv4_t;
typedef bit<9> port_t;
typedef bit<12> vlan_t;

#define PORTS 512

const bit<16> ETHERTYPE_IPV4 = 0x0800;
const bit<16> ETHERTYPE_VLAN = 0x8100;
const bit<16> ETHERTYPE_SERVICE_VLAN = 0x88A8;  // IEEE 802.1ad
const bit<8> PROTOCOL_TCP = 6;
const bit<8> PROTOCOL_UDP = 17;

header ethernet_h {
    mac_t dst;
    mac_t src;
    bit<16> type;
}

header vlan_h {
    bit<3> priority;
    bit<1> drop_eligible;
    vlan_t id;
    bit<16> type;
}

header ipv4_h {
    bit<4> version;
    bit<4> header_words;
    bit<6> dscp;
    bit<2> ecn;
    bit<16> total_length;
    bit<16> identification;
    bit<3> flags;
    bit<13> fragment_offset;
    bit<8> ttl;
    bit<8> protocol;
    bit<16> checksum;
    ipv4_t src;
    ipv4_t dst;
}

/* The first bytes of TCP and of UDP. */
header l4_ports_h {
    bit<16> src;
    bit<16> dst;
}

#define IPV4_FIELDS(h) { h.version, h.header_words, h.dscp, h.ecn, h.total_length, h.identification, h.flags, \
    h.fragment_offset, h.ttl, h.protocol, h.src, h.dst }

#endif
