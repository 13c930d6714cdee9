// SPDX-License-Identifier: Apache-2.0
// What this pipeline keeps beside the stages' metadata: differences that tables compare with 0, since a gateway
// compares at most 32 bits of two fields, and what the registers held.
#ifndef RAILWEAVE_TNA_METADATA_P4
#define RAILWEAVE_TNA_METADATA_P4

/* From ingress to egress, in front of the packet. */
typedef bit<2> content_t;
const content_t CONTENT_OPAQUE = 0;  // Ethernet and a payload
const content_t CONTENT_ICMP = 1;    // up to the IPv4 header
const content_t CONTENT_BARE = 2;    // up to the header of aggregation, without lanes
const content_t CONTENT_LANES = 3;

header bridge_h {
    content_t content;
    verdict_t verdict;
    role_t role;
    bit<1> member;
    bit<1> rewritten;
    @padding bit<7> pad;
    port_t ingress_port;
    bit<8> owner;
}

/* Two lanes in one cell. */
struct pair_t {
    lane_t first;
    lane_t second;
}

struct tna_headers_t {
    bridge_h bridge;
    headers_t packet;
}

struct tna_metadata_t {
    metadata_t md;
    bit<1> from_trunk;         // the source guard: it came in by a trunk
    bit<1> own_source;         // or its source is a NIC at its port
    bool checksum_wrong;       // the IPv4 header does not add up
    bit<1> ours;               // to an address of this switch
    mac_t mac_difference;      // between the destination and that address
    bit<16> length_difference; // between the lengths in IPv4 and UDP header
    bit<16> udp_lack;          // 0: goes on behind the header of aggregation; 1: ends with it; more: too short for it
    bitmap_t others;           // all children but the sender
    bitmap_t before;           // the slot's, without the sender
    bitmap_t again_bit;        // not 0: the sender's bit was set already
    bitmap_t missing;          // children that are still to come
    bit<32> mark_difference;   // between the packet's and the slot's
    bit<8> claim;              // child index + 1
    bit<8> owner_before;       // not 0: two owners
    bit<8> plain_flags;        // the packet's, without and with MISMATCH
    bit<8> mismatch_flags;
}

#endif
