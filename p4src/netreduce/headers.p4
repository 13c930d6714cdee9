// SPDX-License-Identifier: Apache-2.0
// The headers of RoCEv2 (InfiniBand Architecture Specification, volume 1, chapter 9 and annex A17).
#ifndef RAILWEAVE_NETREDUCE_HEADERS_P4
#define RAILWEAVE_NETREDUCE_HEADERS_P4

typedef bit<24> qp_t;
typedef bit<24> psn_t;

/* Opcodes of a reliable connection that belong to a WRITE. */
const bit<8> WRITE_FIRST = 0x06;
const bit<8> WRITE_MIDDLE = 0x07;
const bit<8> WRITE_LAST = 0x08;
const bit<8> WRITE_LAST_IMMEDIATE = 0x09;
const bit<8> WRITE_ONLY = 0x0a;
const bit<8> WRITE_ONLY_IMMEDIATE = 0x0b;

/* UDP lengths of packets whose payload is all lanes. */
const bit<16> BTH_BYTES = 12;
const bit<16> RETH_BYTES = 16;
const bit<16> IMMEDIATE_BYTES = 4;
const bit<16> ICRC_BYTES = 4;
const bit<16> EMPTY_BYTES = UDP_HEADER_BYTES + BTH_BYTES + ICRC_BYTES;  // without any
const bit<16> PART_BYTES = EMPTY_BYTES + 4 * LANES;
const bit<16> START_BYTES = PART_BYTES + RETH_BYTES;

header bth_h {
    bit<8> opcode;
    bit<1> solicited;
    bit<1> migration;
    bit<2> padding;
    bit<4> version;
    bit<16> partition;
    bit<8> congestion;  // FECN, BECN and bits that may change on the way: not in the ICRC
    qp_t qp;
    bit<1> ack_request;
    bit<7> reserved;
    psn_t psn;
}

header reth_h {
    bit<64> address;
    bit<32> rkey;
    bit<32> length;
}

header immediate_h {
    bit<32> data;
}

/* Its bytes are the CRC's from the least significant on. */
header icrc_h {
    bit<32> value;
}

struct headers_t {
    ethernet_h ethernet;
    arp_h arp;
    ipv4_h ipv4;
    udp_h udp;
    bth_h bth;
    reth_h reth;
    immediate_h immediate;
    lanes_h lanes;
    icrc_h icrc;
}

#endif
