// SPDX-License-Identifier: Apache-2.0
// Sums for unmodified RDMA senders, after NetReduce (Liu et al., ASPLOS 2023): the table of contents.
//
// The members of a group form a ring of RoCEv2 reliable connections: member i WRITEs to member i + 1, all of them messages
// of the same sizes, each a multiple of the path MTU. The switch takes the packets of all connections in the same place of
// the sequence together: they are alike, but for their payloads and a few header fields. It lets their sum go on, on
// every connection with its own headers. Acknowledgements, NAKs and all other packets pass: to both ends, it is a
// connection over a bad link, whose losses they repair.
//
// A packet's index is its PSN less the connection's first, its slot the index modulo the group's slots S. What the slot
// holds is overwritten when the first packet of index + S arrives, so that by then every receiver must have had the sum.
// That follows from a rule for the members: send message k + N only when the result of message k, which is the
// message that the member before in the ring WRITEs, has arrived as a whole; and any 2N messages in a row have at most S
// packets. For a packet at index + S is of message k + 2N or later. Its sender holds result k + N, to which all members
// have contributed, each of which held result k.
//
// So, of a packet of a connection (decide.p4 has the same as a table):
//   older than the slot     its receiver has it, but perhaps not its sender the acknowledgement: an empty duplicate goes on
//   others are missing      kept, and dropped: the sender is acknowledged only by its receiver, when the sum has arrived
//   repeated, incomplete    dropped: somebody's contribution is on its way, or will be repeated as well
//   the last one missing    the sum goes on, on all connections
//   repeated, complete      the sum goes on, on this connection
// A member that goes back N repeats what others have got through: it finds complete slots, and its receiver duplicates.
// After a restart without its registers, the switch may lack contributions that are acknowledged; then the connections that
// miss the sum give up. tests/protocol/models/netreduce.pml has this argument for exhaustive search.
//
// In a tree of switches each sums what arrives from below: to the switch above, a switch is a member whose connection
// leads back to itself. Its packet has the slot's index as PSN; what comes back is the sum of all, which takes the place
// of the slot's own and goes on, on the connections that lead to members here. What a copy says beside the sum is that
// of one contributor, or of the switch above: entries of `deliveries` name whose. A packet that is repeated meanwhile
// sends the switch's own sum up again. The argument holds at every switch: a packet at index + S, whoever sends it,
// follows from one of a member who holds result k + N.
#include "common/config.p4"
#include "v1model/arch.p4"
#include "common/types.p4"
#include "common/repeat.p4"
#include "common/headers.p4"
#include "netreduce/headers.p4"
#include "netreduce/metadata.p4"

#include "netreduce/parser.p4"

#include "stages/injector.p4"
#include "stages/guard.p4"
#include "stages/forward.p4"
#include "netreduce/connections.p4"
#include "netreduce/icrc.p4"
#include "netreduce/check.p4"
#include "netreduce/slot_index.p4"
#include "netreduce/slot_shape.p4"
#include "stages/slot_members.p4"
#include "netreduce/slot_requests.p4"
#include "netreduce/own_headers.p4"
#include "netreduce/sums.p4"
#include "netreduce/decide.p4"
#include "netreduce/deliver.p4"

/* For a packet of a registered connection's WRITE. */
control Reduce(inout headers_t hdr, inout metadata_t md) {
    apply {
        Check.apply(hdr, md);
        if (md.fault == FAULT_NONE) {
            // Every register is touched at most once, and in this order.
            SlotIndex.apply(md);
            if (md.age != AGE_STALE) {
                SlotShape.apply(hdr, md);
            }
            if (md.age != AGE_STALE && md.fault == FAULT_NONE) {
                SlotMembers.apply(md);
                SlotRequests.apply(hdr, md);
                KeepHeaders.apply(hdr, md);
                if (md.from_above == 1) {
                    md.age = AGE_NEW;  // overwrites
                } else if (md.has_result == 1) {
                    md.again = 1;      // its part is in there
                }
                Sums.apply(hdr, md);
            }
        }
        Decide.apply(hdr, md);
    }
}

control NetreduceIngress(inout headers_t hdr, inout metadata_t md, inout standard_metadata_t standard) {
    PORT_COUNTER(forged_sources, forged_sources);

    apply {
        md.ingress_port = standard.ingress_port;
        md.checksum_error = standard.checksum_error;
        InjectorIngress.apply(md);
        bit<1> from_trunk = 0;
        bit<1> own_source = 0;
        if (md.lost == 0) {
            Guard.apply(hdr, md.ingress_port, from_trunk, own_source);
            if (from_trunk == 0 && own_source == 0) {
                forged_sources.count(md.ingress_port);
            }
        }
        if (from_trunk == 1 || own_source == 1) {
            Connections.apply(hdr, md);
            if (md.taken == 1) {
                Reduce.apply(hdr, md);
            } else {
                Forward.apply(hdr, md);
                NoWayBack.apply(md);
            }
        }

        if (md.verdict == VERDICT_UNICAST) {
            standard.egress_spec = md.port;
        } else if (md.verdict == VERDICT_FLOOD || md.verdict == VERDICT_RESULT) {
            standard.mcast_grp = md.mcast_group;
        } else {
            mark_to_drop(standard);
        }
    }
}

control NetreduceEgress(inout headers_t hdr, inout metadata_t md, inout standard_metadata_t standard) {
    apply {
        md.egress_port = standard.egress_port;
        if (md.verdict == VERDICT_FLOOD && md.egress_port == md.ingress_port) {
            md.lost = 1;
        } else if (md.taken == 1) {
            if (md.verdict == VERDICT_RESULT) {
                md.member = standard.egress_rid;
            }
            Deliver.apply(hdr, md);
        }
        if (md.lost == 0) {
            InjectorEgress.apply(md);
        }
        if (md.lost == 1) {
            mark_to_drop(standard);
        }
    }
}

V1Switch(Parse(), VerifyIpv4(), NetreduceIngress(), NetreduceEgress(), UpdateIpv4(), Deparse()) main;
