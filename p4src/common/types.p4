// SPDX-License-Identifier: Apache-2.0
// Types, and the code points that only this program sees.
#ifndef RAILWEAVE_TYPES_P4
#define RAILWEAVE_TYPES_P4

typedef bit<48> mac_t;
typedef bit<32> ipv4_t;
typedef bit<9> port_t;
typedef bit<16> group_t;
typedef bit<16> mcast_t;
typedef bit<SLOT_BITS> cell_t;  // index of a slot in the registers
typedef bit<32> bitmap_t;       // of children
typedef bit<LOG_OUTCOMES> outcome_t;
typedef bit<13> account_t;      // index of a group's outcome in the counter group_packets
typedef bit<32> lane_t;         // a two's complement number: sums need not know, MAX does

const lane_t SIGN = 32w1 << 31;

const bitmap_t RESULT_PRESENT = 32w1 << 31;

/* Where the packet goes; applied once, at the end of ingress. */
typedef bit<3> verdict_t;
const verdict_t VERDICT_DROP = 0;
const verdict_t VERDICT_UNICAST = 1;  // to md.port
const verdict_t VERDICT_FLOOD = 2;    // to md.mcast_group, never back to where it came from
const verdict_t VERDICT_RESULT = 3;   // to md.mcast_group, a copy for every child
const verdict_t VERDICT_UP = 4;       // to the parent: `uplinks` knows the way
const verdict_t VERDICT_BACK = 5;     // to the sender, turned round
const verdict_t VERDICT_CHILD = 6;    // to md.mcast_group, where only the copy for child hdr.ina.child goes on
const verdict_t VERDICT_SPREAD = 7;   // to md.mcast_group, a copy for everybody but the sender

/* Who handles the packet. */
typedef bit<2> service_t;
const service_t SERVICE_BRIDGE = 0;     // any other frame
const service_t SERVICE_ANSWERED = 1;   // ARP and ICMP echo: done
const service_t SERVICE_AGGREGATE = 2;  // addressed to this switch

/* What the sender is to its group. */
typedef bit<1> role_t;
const role_t ROLE_CHILD = 0;
const role_t ROLE_PARENT = 1;

/* The way of a probe is kept in its slot field: five bits for every level that it has passed. */
#define PATH_STEP 5

/* The packet's tag against the slot's. */
typedef bit<2> age_t;
const age_t AGE_STALE = 0;
const age_t AGE_SAME = 1;
const age_t AGE_NEW = 2;

/* Why a packet is refused; the first reason found stands. */
typedef bit<4> fault_t;
const fault_t FAULT_NONE = 0;
const fault_t FAULT_SERVICE = 1;
const fault_t FAULT_CHECKSUM = 2;
const fault_t FAULT_LENGTH = 3;
const fault_t FAULT_VERSION = 4;
const fault_t FAULT_KIND = 5;
const fault_t FAULT_OP = 6;
const fault_t FAULT_STRANGER = 7;
const fault_t FAULT_ROLE = 8;
const fault_t FAULT_SLOT = 9;
const fault_t FAULT_SHAPE = 10;

#endif
