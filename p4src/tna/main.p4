// SPDX-License-Identifier: Apache-2.0
// railweave on TNA (Tofino 1 and 2): the table of contents.
#include "common/config.p4"
#include "tna/arch.p4"
#include "common/types.p4"
#include "common/repeat.p4"
#include "common/headers.p4"
#include "common/metadata.p4"

#include "tna/metadata.p4"
#include "tna/parser.p4"

#include "stages/guard.p4"
#include "stages/forward.p4"
#include "stages/members.p4"
#include "stages/decide.p4"
#include "stages/uplinks.p4"
#include "stages/turn.p4"
#include "stages/replicas.p4"

#include "tna/admit.p4"
#include "tna/slots.p4"
#include "tna/lanes.p4"
#include "tna/inward.p4"
#include "tna/outward.p4"

// Where two tables of a stage write to one container, one of them moves to the next stage.
@pa_solitary("ingress", "meta.ours")
// What a stateful ALU says of a bitmap or a mark is used whole.
@pa_container_size("ingress", "meta.md.bit_of_sender", 32)
@pa_container_size("ingress", "meta.others", 32)
@pa_container_size("ingress", "meta.before", 32)
@pa_container_size("ingress", "meta.again_bit", 32)
@pa_container_size("ingress", "meta.missing", 32)
@pa_container_size("ingress", "meta.mark_difference", 32)
@pa_container_size("ingress", "hdr.packet.ina.mark", 32)
control RailweaveIngress(inout tna_headers_t hdr, inout tna_metadata_t meta,
                         in ingress_intrinsic_metadata_t intrinsic,
                         in ingress_intrinsic_metadata_from_parser_t from_parser,
                         inout ingress_intrinsic_metadata_for_deparser_t deparser,
                         inout ingress_intrinsic_metadata_for_tm_t traffic_manager) {
    apply {
        Inward.apply(hdr.packet, meta);

        if (meta.md.verdict == VERDICT_UNICAST) {
            traffic_manager.ucast_egress_port = meta.md.port;
        } else if (meta.md.verdict == VERDICT_FLOOD || meta.md.verdict == VERDICT_RESULT
                || meta.md.verdict == VERDICT_CHILD || meta.md.verdict == VERDICT_SPREAD) {
            traffic_manager.mcast_grp_a = meta.md.mcast_group;
        } else {
            deparser.drop_ctl = 1;
        }

        hdr.bridge.setValid();
        hdr.bridge.verdict = meta.md.verdict;
        hdr.bridge.role = meta.md.role;
        hdr.bridge.member = meta.md.member;
        hdr.bridge.rewritten = meta.md.rewritten;
        hdr.bridge.ingress_port = meta.md.ingress_port;
        hdr.bridge.owner = meta.md.owner;
        if (hdr.packet.lanes.isValid()) {
            hdr.bridge.content = CONTENT_LANES;
        } else if (hdr.packet.ina.isValid()) {
            hdr.bridge.content = CONTENT_BARE;
        } else if (hdr.packet.icmp.isValid()) {
            hdr.bridge.content = CONTENT_ICMP;
        } else {
            hdr.bridge.content = CONTENT_OPAQUE;
        }
    }
}

control RailweaveEgress(inout tna_headers_t hdr, inout metadata_t md, in egress_intrinsic_metadata_t intrinsic,
                        in egress_intrinsic_metadata_from_parser_t from_parser,
                        inout egress_intrinsic_metadata_for_deparser_t deparser,
                        inout egress_intrinsic_metadata_for_output_port_t port) {
    apply {
        Outward.apply(hdr.packet, md);
        if (md.lost == 1) {
            deparser.drop_ctl = 1;
        }
    }
}

Pipeline(IngressParse(), RailweaveIngress(), IngressDeparse(), EgressParse(), RailweaveEgress(), EgressDeparse())
    pipe;
Switch(pipe) main;
