// SPDX-License-Identifier: Apache-2.0
// What the stages are given, the packet's headers, and what they tell each other, which starts at 0.
#ifndef RAILWEAVE_METADATA_P4
#define RAILWEAVE_METADATA_P4

struct headers_t {
    ethernet_h ethernet;
    arp_h arp;
    ipv4_h ipv4;
    icmp_h icmp;
    udp_h udp;
    ina_h ina;
    lanes_h lanes;
}

struct metadata_t {
    /* From the target, filled in by main.p4. */
    port_t ingress_port;
    port_t egress_port;
    bit<16> egress_rid;      // which copy of a multicast packet this is: child index + 1, or beyond that the parent's
    bit<1> checksum_error;   // the IPv4 header does not add up

    /* Decisions, applied once by main.p4. */
    verdict_t verdict;
    port_t port;
    mcast_t mcast_group;
    mcast_t spread_group;    // what `mcast_group` becomes for SPREAD
    bit<32> loss;            // the injector's threshold
    bit<1> lost;             // this copy goes nowhere
    bit<1> rewritten;        // the IPv4 header was changed: its checksum has to be made anew

    /* Addressing. */
    ipv4_t address;          // asked for by ARP, or the IPv4 destination
    mac_t virtual_mac;       // of that address, if it is one of this switch's
    service_t service;
    fault_t fault;

    /* The sender's place in its group, from `members`. */
    role_t role;
    bit<1> member;           // it is in `members`
    bit<9> group_place;      // the group's, in the counter of outcomes
    outcome_t outcome;
    bitmap_t bit_of_sender;
    bitmap_t all_children;
    bit<1> is_root;
    bit<16> slot_excess;     // bits of the slot number outside the group's range
    cell_t cell;
    bit<32> tag;

    /* The way of a probe, where it is made before it is needed. */
    bit<16> path_up;
    bit<16> path_down;
    bit<8> path_child;

    /* What the registers say. */
    age_t age;
    bit<1> again;            // the sender's bit was set already
    bit<1> complete;         // all children are in
    bit<1> has_result;       // the parent's result is in
    bit<1> mismatch;         // the packet's mark differs from the slot's, or the chunk has two owners
    bit<8> owner;            // with FLAG_OWNER: 1 + the child to which the result's lanes go; 0: it is not below
}

#endif
