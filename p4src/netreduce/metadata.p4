// SPDX-License-Identifier: Apache-2.0
// What the stages tell each other. Everything starts at 0.
#ifndef RAILWEAVE_NETREDUCE_METADATA_P4
#define RAILWEAVE_NETREDUCE_METADATA_P4

typedef bit<HEADER_CELL_BITS> header_cell_t;  // where a connection's RETH and immediate data of a slot are kept

struct metadata_t {
    /* From the target, filled in by main.p4. */
    port_t ingress_port;
    port_t egress_port;
    bit<1> checksum_error;   // the IPv4 header does not add up

    /* Decisions, applied once by main.p4. */
    verdict_t verdict;
    port_t port;             // on which a packet that goes to one receiver leaves
    mcast_t mcast_group;
    bit<32> loss;            // the injector's threshold
    bit<1> lost;             // this copy goes nowhere
    bit<1> rewritten;        // the IPv4 header was changed: its checksum has to be made anew

    /* The packet's connection, from `connections`. */
    bit<1> taken;            // it takes part: a WRITE of a registered connection
    fault_t fault;
    group_t group;
    bit<16> member;          // on ingress the sender; on egress the one on whose connection this copy goes on
    bitmap_t bit_of_sender;
    bit<1> from_above;       // the sender is the switch above
    bit<1> is_root;          // no switch is above
    bitmap_t all_children;
    header_cell_t headers;   // where the sender's RETH and immediate data of this slot are kept
    bit<32> epoch;           // the group's number among all that have used its slots
    psn_t index;             // of the packet, counted from the connection's first
    bit<16> slot;
    cell_t cell;

    /* What the registers say. */
    age_t age;
    bit<1> again;            // the sender's part is in there already
    bit<1> complete;         // all members are in
    bit<1> has_result;       // the sum of the switch above is in
    bitmap_t ack_requests;   // members that want to hear that the packet has arrived
}

#endif
