// SPDX-License-Identifier: Apache-2.0
// The packet of ATP: a header and LANES numbers.
#ifndef RAILWEAVE_ATP_HEADERS_P4
#define RAILWEAVE_ATP_HEADERS_P4

const bit<16> ATP_UDP_BYTES = UDP_HEADER_BYTES + ATP_HEADER_BYTES + 4 * LANES;

header atp_h {
    bit<4> version;
    bit<4> kind;
    bit<8> flags;
    group_t job;
    bit<32> sequence;
    bitmap_t ranks;  // whose numbers are in it
}

struct headers_t {
    ethernet_h ethernet;
    ipv4_h ipv4;
    udp_h udp;
    atp_h atp;
    lanes_h lanes;
}

#endif
