// SPDX-License-Identifier: Apache-2.0
// railweave on v1model: the table of contents.
#include "common/config.p4"
#include "v1model/arch.p4"
#include "common/types.p4"
#include "v1model/repeat.p4"
#include "common/headers.p4"
#include "common/metadata.p4"

#include "v1model/parser.p4"

#include "stages/injector.p4"
#include "stages/guard.p4"
#include "stages/virtual_addresses.p4"
#include "stages/forward.p4"
#include "stages/check.p4"
#include "stages/members.p4"
#include "stages/slot_tag.p4"
#include "stages/slot_members.p4"
#include "stages/slot_mark.p4"
#include "stages/slot_owner.p4"
#include "stages/slot_flags.p4"
#include "stages/lanes.p4"
#include "stages/decide.p4"
#include "stages/uplinks.p4"
#include "stages/turn.p4"
#include "stages/replicas.p4"
#include "stages/bare.p4"

/* In-network aggregation, for a packet addressed to this switch. */
control Aggregate(inout headers_t hdr, inout metadata_t md) {
    PACKET_COUNTER(GROUP_PACKETS, account_t, group_packets, group_packets);

    apply {
        if (md.fault == FAULT_NONE) {
            Check.apply(hdr, md);
        }
        if (md.fault == FAULT_NONE) {
            Members.apply(hdr, md);
        }
        if (md.fault == FAULT_NONE) {
            CheckPlace.apply(hdr, md);
        }
        if (md.fault == FAULT_NONE && hdr.ina.kind <= KIND_RESULT) {
            // Every register is touched at most once, and in this order: so it fits a pipeline of hardware stages.
            SlotTag.apply(hdr, md);
            if (md.age != AGE_STALE) {
                SlotMembers.apply(md);
                SlotMark.apply(hdr, md);
                SlotOwner.apply(hdr, md);
                SlotFlags.apply(hdr, md);
                if (hdr.lanes.isValid() || md.role == ROLE_CHILD) {
                    Lanes.apply(hdr, md);
                }
            }
        }
        Decide.apply(hdr, md);
        if (md.member == 1) {
            group_packets.count(md.group_place ++ md.outcome);
        }
        if (md.verdict == VERDICT_UP) {
            Uplinks.apply(hdr, md);
        }
    }
}

control RailweaveIngress(inout headers_t hdr, inout metadata_t md, inout standard_metadata_t standard) {
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
            VirtualAddresses.apply(hdr, md);
            if (md.service == SERVICE_AGGREGATE) {
                Aggregate.apply(hdr, md);
            } else if (md.service == SERVICE_BRIDGE) {
                Forward.apply(hdr, md);
                NoWayBack.apply(md);
            }
            if (md.verdict == VERDICT_BACK) {
                Turn.apply(hdr, md);
            }
        }

        if (md.verdict == VERDICT_UNICAST) {
            standard.egress_spec = md.port;
        } else if (md.verdict == VERDICT_FLOOD || md.verdict == VERDICT_RESULT
                || md.verdict == VERDICT_CHILD || md.verdict == VERDICT_SPREAD) {
            standard.mcast_grp = md.mcast_group;
        } else {
            mark_to_drop(standard);
        }
    }
}

control RailweaveEgress(inout headers_t hdr, inout metadata_t md, inout standard_metadata_t standard) {
    apply {
        md.egress_port = standard.egress_port;
        md.egress_rid = standard.egress_rid;
        if ((md.verdict == VERDICT_CHILD && md.egress_rid != (bit<16>)hdr.ina.child + 1)
                || (md.verdict == VERDICT_SPREAD && md.role == ROLE_CHILD
                    && md.egress_rid == (bit<16>)hdr.ina.child + 1)
                || (md.verdict == VERDICT_FLOOD && md.egress_port == md.ingress_port)) {
            md.lost = 1;
        } else if (md.verdict == VERDICT_RESULT || md.verdict == VERDICT_CHILD
                || md.verdict == VERDICT_SPREAD) {
            Replicas.apply(hdr, md);
        }
        if (md.member == 1 && hdr.ina.kind == KIND_RESULT) {
            Bare.apply(hdr, md);
        }
        if (md.lost == 0) {
            InjectorEgress.apply(md);
        }
        if (md.lost == 1) {
            mark_to_drop(standard);
        }
    }
}

V1Switch(Parse(), VerifyIpv4(), RailweaveIngress(), RailweaveEgress(), UpdateIpv4(), Deparse()) main;
