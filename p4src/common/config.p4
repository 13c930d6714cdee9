// SPDX-License-Identifier: Apache-2.0
// The one home of every size and code point. p4src/config.py reads this file, so each number is a plain
// literal on a line of its own; the preprocessor needs the sizes, the packet formats need the typed constants.
#ifndef RAILWEAVE_CONFIG_P4
#define RAILWEAVE_CONFIG_P4

/* Sizes. */
#ifndef LANES
#define LANES 256              // 32-bit integers per packet; -DLANES=64 for the small profile
#endif
#define SLOT_BITS 14
#define SLOTS 16384            // slot numbers of the switch, both copies included: 2^SLOT_BITS
#define MAX_CHILDREN 31        // bits 0..30 of the bitmap `seen`; bit 31 is RESULT PRESENT
#define MAX_MEMBERS 4096       // (group, child) pairs over all groups
#define MAX_GROUPS 512
#define MAX_REPLICAS 4096      // copies in all groups of the replication engine together: BMv2 has no room for more
#define MAX_MACS 4096
#define PORTS 512

/* Aggregation packets (after Ethernet / IPv4 / UDP). */
const bit<16> INA_UDP_PORT = 5257;
const bit<16> INA_HEADER_BYTES = 16;
const bit<4> INA_VERSION = 1;

const bit<4> KIND_CONTRIBUTE = 0;
const bit<4> KIND_RESULT = 1;
const bit<4> KIND_PROBE = 2;
const bit<4> KIND_SPREAD = 3;
const bit<4> KIND_FETCH = 4;   // from host to host: no switch takes one

const bit<8> OP_SUM = 0;
const bit<8> OP_MAX = 1;

const bit<8> FLAG_RETRANSMISSION = 1;
const bit<8> FLAG_NONFINITE = 2;
const bit<8> FLAG_OVERFLOW = 4;
const bit<8> FLAG_MISMATCH = 8;
const bit<8> FLAG_TO_ROOT = 16;
const bit<8> FLAG_OWNER = 32;  // the result is for one child of each switch only; the packet may have no lanes
const bit<8> FLAG_LAST = 64;   // a contributor has begun no multicast behind this call
const bit<8> SLOT_FLAGS = 110;  // RETRANSMISSION and TO_ROOT belong to one packet, the others to the chunk

/* What has become of packets of a group's members: places in the counter `group_packets`, OUTCOMES of them for each
 * GROUP_STEP slot numbers, in the place where the group's range begins. */
#define OUTCOMES 16
#define LOG_OUTCOMES 4
#define GROUP_STEP 32          // no group has fewer slot numbers
#define LOG_GROUP_STEP 5
#define GROUP_PACKETS 8192     // SLOTS / GROUP_STEP * OUTCOMES
const bit<4> OUTCOME_REFUSED = 0;  // not in the role that it claims, or outside the group's slots
const bit<4> OUTCOME_STALE = 1;
const bit<4> OUTCOME_ABSORB = 2;
const bit<4> OUTCOME_DUPLICATE = 3;
const bit<4> OUTCOME_LATE_RESULT = 4;
const bit<4> OUTCOME_RESULT = 5;
const bit<4> OUTCOME_MISMATCH = 6;
const bit<4> OUTCOME_DELIVER_DOWN = 7;
const bit<4> OUTCOME_FORWARD_UP = 8;
const bit<4> OUTCOME_FORWARD_UP_AGAIN = 9;
const bit<4> OUTCOME_REFLECT = 10;
const bit<4> OUTCOME_PROBE = 11;
const bit<4> OUTCOME_SPREAD = 12;

/* RoCEv2 packets (after Ethernet / IPv4 / UDP), for the program netreduce. */
const bit<16> ROCE_UDP_PORT = 4791;
#define MAX_CONNECTIONS 4096
#define HEADER_CELL_BITS 16
#define HEADER_CELLS 65536     // RETHs and immediate data that are kept: one of each per connection and slot number

/* Packets of ATP (after Ethernet / IPv4 / UDP), for the program atp: a port of ATP_PORTS for each of a host's ends. */
const bit<16> ATP_UDP_PORT = 5280;
#define ATP_PORTS 32
const bit<16> ATP_HEADER_BYTES = 12;
const bit<4> ATP_VERSION = 1;
const bit<4> ATP_GRADIENT = 0;  // to the parameter server
const bit<4> ATP_RESULT = 1;    // from it
const bit<8> ATP_RESEND = 1;    // of a gradient: drains what is held of its sequence number

/* Group of the replication engine to which frames with an unknown or a group address go. */
const bit<16> FLOOD_GROUP = 1;

#endif
