// SPDX-License-Identifier: Apache-2.0
// Best-effort aggregation, after ATP (Lao et al., NSDI 2021): the table of contents.
//
// Workers send gradients to a parameter server; the switch in front of the workers sums on the way what it can. For each
// packet it looks at one aggregator, chosen by a hash of job and sequence number among those that all jobs share. If that
// is free or the packet's own, the packet is added and dropped, and the last of the switch's workers takes the sum along
// to the server. If it is another's, the packet goes on alone. The server adds what comes, tells from `ranks` whose
// numbers it has, and answers with the result, which frees the aggregator and goes to all workers behind the switch.
//
// A worker that misses the result sends its gradient again with ATP_RESEND: that takes along what is held, whole or not,
// and frees the aggregator. It never takes one, so a second repetition reaches the server alone. The server counts no
// rank twice: it takes a packet only if it has no numbers of its ranks yet. README.md lists differences from the paper.
#include "common/config.p4"
#include "v1model/arch.p4"
#include "common/types.p4"
#include "common/repeat.p4"
#include "common/headers.p4"
#include "headers.p4"
#include "metadata.p4"

#include "parser.p4"

#include "stages/injector.p4"
#include "stages/forward.p4"
#include "jobs.p4"
#include "aggregator.p4"
#include "netreduce/sums.p4"
#include "decide.p4"
#include "copies.p4"

/* For a packet of a worker behind this switch, or to such workers. */
control Aggregate(inout headers_t hdr, inout metadata_t md) {
    apply {
        if (md.checksum_error == 1) {
            md.fault = FAULT_CHECKSUM;
        } else if (hdr.atp.kind == ATP_GRADIENT && hdr.atp.ranks != md.bit_of_sender) {
            md.fault = FAULT_ROLE;
        }
        if (md.fault == FAULT_NONE) {
            Aggregator.apply(hdr, md);
            if (hdr.atp.kind == ATP_GRADIENT && md.age != AGE_STALE) {
                AggregatorRanks.apply(hdr, md);
                hdr.udp.checksum = 0;  // none, which is cheaper than a sum over all lanes
                Sums.apply(hdr, md);
            }
        }
        Decide.apply(hdr, md);
    }
}

control AtpIngress(inout headers_t hdr, inout metadata_t md, inout standard_metadata_t standard) {
    apply {
        md.ingress_port = standard.ingress_port;
        md.checksum_error = standard.checksum_error;
        InjectorIngress.apply(md);
        if (md.lost == 0) {
            Jobs.apply(hdr, md);
            if (md.taken == 1) {
                Aggregate.apply(hdr, md);
            }
            if (md.taken == 0 || md.verdict == VERDICT_UNICAST) {
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

control AtpEgress(inout headers_t hdr, inout metadata_t md, inout standard_metadata_t standard) {
    apply {
        md.egress_port = standard.egress_port;
        if (md.verdict == VERDICT_FLOOD && md.egress_port == md.ingress_port) {
            md.lost = 1;
        } else if (md.verdict == VERDICT_RESULT) {
            md.egress_rid = standard.egress_rid;
            Copies.apply(hdr, md);
        }
        if (md.lost == 0) {
            InjectorEgress.apply(md);
        }
        if (md.lost == 1) {
            mark_to_drop(standard);
        }
    }
}

V1Switch(Parse(), VerifyIpv4(), AtpIngress(), AtpEgress(), UpdateIpv4(), Deparse()) main;
