// SPDX-License-Identifier: Apache-2.0
// Sums compressed values. A lane has 8 indices of 4 bits. The switch looks up the level of each index, and adds levels
// in 8 bits. The greatest level times the number of ranks is at most 255, so no sum carries into its neighbour.
#include "algorithm/begin.p4"

#define WIDE_RESULTS  // 8 bits for each 4 bits of a rank

header algorithm_h {
    bit<32> sequence;
    bit<32> kind;
}

const bit<32> KIND_RANGES = 0;  // each lane has the greatest magnitude of a block, a float32 without sign
const bit<32> KIND_VALUES = 1;  // the indices of one block

struct own_t {
    bit<64> low;   // levels of indices 0 to 7, index 0 in the last byte
    bit<64> high;  // levels of indices 8 to 15
}

#include "algorithm/frame.p4"
#include "algorithm/chunk.p4"

/* The lookup table of a job. It depends on the number of ranks. */
control Levels(in headers_t hdr, inout metadata_t md) {
    @name(".level")
    action level(bit<64> low, bit<64> high) {
        md.own.low = low;
        md.own.high = high;
    }

    @name(".levels")
    table levels {
        key = { hdr.udp.dst_port: exact @name("udp_port"); }
        actions = { level; @defaultonly NoAction; }
        default_action = NoAction();
        size = ALGORITHM_PORTS;
    }

    apply {
        levels.apply();
    }
}

/* Replaces indices with their levels. Indices of a lane's upper half stay in the lane, the others go to `more`. */
control LookUp(inout headers_t hdr, inout metadata_t md) {
// A shift by 64 and more gives 0, so that only the right half of the table counts.
#define LEVEL(x, first, last) \
    (bit<8>)(md.own.low >> (x[first:last] ++ 3w0) | md.own.high >> ((x[first:last] ^ 4w8) ++ 3w0))
#define FOUR_LEVELS(x) LEVEL(x, 15, 12) ++ LEVEL(x, 11, 8) ++ LEVEL(x, 7, 4) ++ LEVEL(x, 3, 0)
#define LANE_LOOK_UP(n) \
    hdr.more.lane_##n = FOUR_LEVELS(hdr.lanes.lane_##n[15:0]); \
    hdr.lanes.lane_##n = FOUR_LEVELS(hdr.lanes.lane_##n[31:16]);
#define LANE_CLEAR(n) hdr.more.lane_##n = 0;

    apply {
        hdr.more.setValid();
        hdr.ipv4.total_length = hdr.ipv4.total_length + 4 * LANES;
        hdr.udp.length = hdr.udp.length + 4 * LANES;
        md.rewritten = 1;
        if (hdr.own.kind == KIND_VALUES) {
            Levels.apply(hdr, md);
            FOR_EACH_LANE(LANE_LOOK_UP)
        } else {
            FOR_EACH_LANE(LANE_CLEAR)
        }
    }
}

/* Combines the packet with its cell: the maximum of ranges, the sum of levels. */
control Combine(inout headers_t hdr, in metadata_t md) {
#define LANE_REGISTERS(n) CELLS(lane_t, lanes_##n, lane_##n); CELLS(lane_t, more_##n, more_##n);
    FOR_EACH_LANE(LANE_REGISTERS)

#define LANE_TAKE(n) \
    CELL_READ(lanes_##n, md.cell, hdr.lanes.lane_##n); \
    CELL_READ(more_##n, md.cell, hdr.more.lane_##n);
#define LANE_MAX(n) \
    CELL_READ(lanes_##n, md.cell, held); \
    if (held > hdr.lanes.lane_##n) { hdr.lanes.lane_##n = held; }
#define LANE_ADD(n) \
    CELL_READ(lanes_##n, md.cell, held); \
    hdr.lanes.lane_##n = hdr.lanes.lane_##n + held; \
    CELL_READ(more_##n, md.cell, held); \
    hdr.more.lane_##n = hdr.more.lane_##n + held;
#define LANE_WRITE(n) \
    CELL_WRITE(lanes_##n, md.cell, hdr.lanes.lane_##n); \
    CELL_WRITE(more_##n, md.cell, hdr.more.lane_##n);

    apply {
        lane_t held;
        if (md.again == 1) {
            FOR_EACH_LANE(LANE_TAKE)  // a packet that is sent again must not count twice
        } else if (md.age == AGE_SAME) {
            if (hdr.own.kind == KIND_VALUES) {
                FOR_EACH_LANE(LANE_ADD)
            } else {
                FOR_EACH_LANE(LANE_MAX)
            }
        }
        FOR_EACH_LANE(LANE_WRITE)
    }
}

control Algorithm(inout headers_t hdr, inout metadata_t md) {
    apply {
        Chunk.apply(hdr.own.sequence, md);
        if (md.age != AGE_STALE) {
            LookUp.apply(hdr, md);
            Combine.apply(hdr, md);
        }
    }
}

#include "algorithm/switch.p4"
