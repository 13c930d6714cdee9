// SPDX-License-Identifier: Apache-2.0
// Keeps the 8 smallest numbers of all ranks. A packet carries 8 numbers, least first; docs/howto/algorithm.md explains it.
#include "algorithm/begin.p4"

header algorithm_h {
    bit<32> sequence;
}

struct own_t {}

#include "algorithm/frame.p4"
#include "algorithm/chunk.p4"

#define ORDER(a, b) if (b < a) { lane_t larger = a; a = b; b = larger; }

control Smallest(inout headers_t hdr, in metadata_t md) {
#define LANE_REGISTER(n) CELLS(lane_t, cells_##n, lane_##n);
    FOR_EACH_LANE(LANE_REGISTER)

    apply {
        if (md.age == AGE_SAME) {
#define LANE_LOCAL(n) lane_t held_##n; CELL_READ(cells_##n, md.cell, held_##n);
            FOR_EACH_LANE(LANE_LOCAL)
            if (md.again == 0) {
                // Of two ascending lists, the smaller ones of held[i] and sent[7 - i] are the 8 smallest.
#define LANE_KEEP(n, m) if (hdr.lanes.lane_##m < held_##n) { held_##n = hdr.lanes.lane_##m; }
                LANE_KEEP(00, 07) LANE_KEEP(01, 06) LANE_KEEP(02, 05) LANE_KEEP(03, 04)
                LANE_KEEP(04, 03) LANE_KEEP(05, 02) LANE_KEEP(06, 01) LANE_KEEP(07, 00)
                // They rise and fall once: a bitonic sequence (Batcher, 1968), which three rounds sort.
                ORDER(held_00, held_04) ORDER(held_01, held_05) ORDER(held_02, held_06) ORDER(held_03, held_07)
                ORDER(held_00, held_02) ORDER(held_01, held_03) ORDER(held_04, held_06) ORDER(held_05, held_07)
                ORDER(held_00, held_01) ORDER(held_02, held_03) ORDER(held_04, held_05) ORDER(held_06, held_07)
            }
#define LANE_TAKE(n) hdr.lanes.lane_##n = held_##n;
            FOR_EACH_LANE(LANE_TAKE)
        }
#define LANE_WRITE(n) CELL_WRITE(cells_##n, md.cell, hdr.lanes.lane_##n);
        FOR_EACH_LANE(LANE_WRITE)
    }
}

control Algorithm(inout headers_t hdr, inout metadata_t md) {
    apply {
        Chunk.apply(hdr.own.sequence, md);
        if (md.age != AGE_STALE) {
            Smallest.apply(hdr, md);
        }
    }
}

#include "algorithm/switch.p4"
