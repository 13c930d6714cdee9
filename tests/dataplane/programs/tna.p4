// SPDX-License-Identifier: Apache-2.0
// The program for Tofino on v1model, so that the suite of the aggregation program can run it: its own parser,
// deparser and externs apart, everything is p4src/tna.
#include "common/config.p4"
#include "v1model/arch.p4"
#include "common/types.p4"
#include "common/repeat.p4"
#include "common/headers.p4"
#include "common/metadata.p4"
#include "tna/metadata.p4"
#include "v1model/parser.p4"

/* A stateful ALU: a cell is read, changed and written. */
#define CELL_UPDATE(T, cells, name, held, ...) \
    action name(in cell_t index) { T held; cells.read(held, index); __VA_ARGS__ cells.write(index, held); }
#define CELL_ACTION(T, cells, name, R, held, result, ...) \
    action name(in cell_t index, out R result) { \
        T held; \
        cells.read(held, index); \
        __VA_ARGS__ \
        cells.write(index, held); \
    }
#define UPDATE(name, index) name(index)
#define EXECUTE(name, index, ...) name(index, __VA_ARGS__)

/* Two lanes per cell: one of a register each, under the names that they have alone. */
#define PAIRS(cells, n, m) \
    CELLS(lane_t, cells##_first, lane_##n); \
    CELLS(lane_t, cells##_second, lane_##m)
#define PAIR_BODY(cells, held, ...) \
    pair_t held; \
    cells##_first.read(held.first, index); \
    cells##_second.read(held.second, index); \
    __VA_ARGS__ \
    cells##_first.write(index, held.first); \
    cells##_second.write(index, held.second);
#define PAIR_UPDATE(cells, name, held, ...) action name(in cell_t index) { PAIR_BODY(cells, held, __VA_ARGS__) }
#define PAIR_ACTION(cells, name, held, ...) \
    action name(in cell_t index, out lane_t first, out lane_t second) { \
        PAIR_BODY(cells, held, __VA_ARGS__ first = held.first; second = held.second;) \
    }

#define JOIN(T, name)
#define JOINED(name, into, left, right) into = left ++ right
#undef PATH_UP
#define PATH_UP(hdr, md) md.path_up
#undef PATH_DOWN
#define PATH_DOWN(hdr, md) md.path_down
#undef PATH_CHILD
#define PATH_CHILD(hdr, md) md.path_child

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


parser OuterParse(packet_in packet, out headers_t hdr, inout tna_metadata_t meta,
                  inout standard_metadata_t standard) {
    Parse() parse;

    state start {
        parse.apply(packet, hdr, meta.md, standard);
        transition accept;
    }
}

control Verify(inout headers_t hdr, inout tna_metadata_t meta) {
    apply {
        verify_checksum(hdr.ipv4.isValid() && hdr.ipv4.header_words == 5,
                        IPV4_FIELDS(hdr.ipv4), hdr.ipv4.checksum, HashAlgorithm.csum16);
    }
}

control OuterIngress(inout headers_t hdr, inout tna_metadata_t meta, inout standard_metadata_t standard) {
    apply {
        meta.md.ingress_port = standard.ingress_port;
        meta.checksum_wrong = standard.checksum_error == 1;
        Inward.apply(hdr, meta);
        if (meta.md.verdict == VERDICT_UNICAST) {
            standard.egress_spec = meta.md.port;
        } else if (meta.md.verdict == VERDICT_FLOOD || meta.md.verdict == VERDICT_RESULT
                || meta.md.verdict == VERDICT_CHILD || meta.md.verdict == VERDICT_SPREAD) {
            standard.mcast_grp = meta.md.mcast_group;
        } else {
            mark_to_drop(standard);
        }
    }
}

control OuterEgress(inout headers_t hdr, inout tna_metadata_t meta, inout standard_metadata_t standard) {
    apply {
        meta.md.egress_port = standard.egress_port;
        meta.md.egress_rid = standard.egress_rid;
        Outward.apply(hdr, meta.md);
        if (meta.md.lost == 1) {
            mark_to_drop(standard);
        }
    }
}

control Update(inout headers_t hdr, inout tna_metadata_t meta) {
    apply {
        update_checksum(meta.md.rewritten == 1, IPV4_FIELDS(hdr.ipv4), hdr.ipv4.checksum, HashAlgorithm.csum16);
    }
}

V1Switch(OuterParse(), Verify(), OuterIngress(), OuterEgress(), Update(), Deparse()) main;
