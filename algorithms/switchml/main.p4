// SPDX-License-Identifier: Apache-2.0
// SwitchML's switch: a pool of slots with two versions each, and the greatest exponent of each next block.
#include "algorithm/begin.p4"

header algorithm_h {
    bit<32> phase;     // how often the slot was used before, over all calls of a job; the last bit is the version
    bit<16> slot;
    bit<8> exponent;   // of the sender's next block in this slot; in a result the greatest of all ranks
    bit<8> unused;
}

struct own_t {}

#include "algorithm/frame.p4"
#include "netreduce/sums.p4"

/* Whose numbers are in the slot, and whether the packet gets a result. */
control Pool(in headers_t hdr, inout metadata_t md) {
    CELLS(bit<32>, phases, phase);  // newest phase of a slot, in the cell of version 0
    CELLS(bitmap_t, bitmaps, seen);

    apply {
        cell_t slot = md.first_cell + (((cell_t)hdr.own.slot << 1) & md.cell_mask);
        md.cell = slot + (cell_t)hdr.own.phase[0:0];
        cell_t other = md.cell ^ 1;

        bit<32> newest;
        bitmap_t seen;
        bitmap_t seen_other;
        CELL_READ(phases, slot, newest);
        CELL_READ(bitmaps, md.cell, seen);
        CELL_READ(bitmaps, other, seen_other);

        // A rank begins a phase when it has the result of the phase before. So no rank needs a phase before that,
        // nor the phase before one to which it has contributed.
        bit<32> ahead = hdr.own.phase - newest;
        bit<1> complete = 0;
        if (ahead == 0xFFFFFFFF && seen_other & md.bit_of_sender == 0) {
            md.age = AGE_SAME;
            complete = 1;
        } else if (ahead[31:31] == 0) {
            md.age = AGE_SAME;
            if (ahead > 1) {  // the ranks have begun again, and need nothing of before
                seen = 0;
                seen_other = 0;
            }
            if (seen == 0) {
                md.age = AGE_NEW;
                CELL_WRITE(phases, slot, hdr.own.phase);
            }
        }  // else AGE_STALE

        if (md.age != AGE_STALE) {
            if (seen & md.bit_of_sender != 0) {
                md.again = 1;
            } else {
                seen = seen | md.bit_of_sender;
                CELL_WRITE(bitmaps, md.cell, seen);
                CELL_WRITE(bitmaps, other, seen_other & ~md.bit_of_sender);
            }
            if (complete == 1 || seen == md.all_ranks) {
                md.verdict = VERDICT_RESULT;
                if (md.again == 1) {
                    md.verdict = VERDICT_BACK;
                }
            }
        }
    }
}

/* The greatest exponent of the ranks' next blocks. */
control Exponent(inout headers_t hdr, in metadata_t md) {
    CELLS(bit<8>, exponents, exponent);

    apply {
        bit<8> held;
        CELL_READ(exponents, md.cell, held);
        if (md.again == 1 || (md.age == AGE_SAME && held > hdr.own.exponent)) {
            hdr.own.exponent = held;
        }
        CELL_WRITE(exponents, md.cell, hdr.own.exponent);
    }
}

control Algorithm(inout headers_t hdr, inout metadata_t md) {
    apply {
        Pool.apply(hdr, md);
        if (md.age != AGE_STALE) {
            Exponent.apply(hdr, md);
            Sums.apply(hdr, md);
        }
    }
}

#include "algorithm/switch.p4"
