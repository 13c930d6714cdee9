// SPDX-License-Identifier: Apache-2.0
// Sums the blocks that are not zero, after OmniReduce (Fei et al., SIGCOMM 2021).
//
// A stream has a current block, the same at all ranks. In each round, every rank sends its own next block in the stream
// that is not zero, and its numbers of the current block unless they are zero. The result has the sum and the least next
// block, which is the stream's current block in the next round. README.md lists differences from the paper.
#include "algorithm/begin.p4"

header algorithm_h {
    bit<32> sequence;  // number of the stream's round * streams + number of the stream
    bit<32> next;      // the next block, or all ones if no block follows
}

struct own_t {}

#define BARE_PACKETS  // a rank whose block is zero sends no lanes
#include "algorithm/frame.p4"
#include "algorithm/chunk.p4"
#include "netreduce/sums.p4"

/* The least next block of the ranks that are in. */
control Next(inout headers_t hdr, in metadata_t md) {
    CELLS(bit<32>, nexts, next);

    apply {
        bit<32> least;
        CELL_READ(nexts, md.cell, least);
        if (md.age == AGE_NEW || hdr.own.next < least) {
            least = hdr.own.next;
            CELL_WRITE(nexts, md.cell, least);
        }
        hdr.own.next = least;
    }
}

/* The sum of the blocks. A cell without a block needs no reset of its lanes: the first block replaces them. */
control Block(inout headers_t hdr, inout metadata_t md) {
    CELLS(bit<1>, presents, present);

    apply {
        bit<1> present = 0;
        if (md.age == AGE_SAME) {
            CELL_READ(presents, md.cell, present);
        }
        if (present == 0) {
            md.age = AGE_NEW;
        }
        if (hdr.lanes.isValid()) {
            present = 1;
        } else if (present == 1 && md.verdict != VERDICT_DROP) {
            AddLanes.apply(hdr, md);
            md.again = 1;  // the packet has no numbers to add: it gets those of the cell
        }
        CELL_WRITE(presents, md.cell, present);
        if (hdr.lanes.isValid()) {
            Sums.apply(hdr, md);
        }
    }
}

control Algorithm(inout headers_t hdr, inout metadata_t md) {
    apply {
        Chunk.apply(hdr.own.sequence, md);
        if (md.age != AGE_STALE) {
            Next.apply(hdr, md);
            Block.apply(hdr, md);
        }
    }
}

#include "algorithm/switch.p4"
