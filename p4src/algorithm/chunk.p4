// SPDX-License-Identifier: Apache-2.0
// Cells for numbered chunks, with the ranks that have contributed. Each chunk has a cell, its number modulo the job's
// cells. A rank sends chunk i + cells only when it has the result of chunk i + cells / 2. So all ranks have sent that
// one, and have the result of chunk i, whose cell is free.

control Chunk(in bit<32> sequence, inout metadata_t md) {
    CELLS(bit<32>, sequences, sequence);
    CELLS(bitmap_t, bitmaps, ranks);

    apply {
        md.cell = md.first_cell + ((cell_t)sequence & md.cell_mask);

        // Numbers wrap, so only their difference tells which one is newer.
        bit<32> held;
        CELL_READ(sequences, md.cell, held);
        bit<32> ahead = sequence - held;
        if (ahead == 0) {
            md.age = AGE_SAME;
        } else if (ahead[31:31] == 0) {
            md.age = AGE_NEW;
            CELL_WRITE(sequences, md.cell, sequence);
        }  // else AGE_STALE: nobody needs the packet

        if (md.age != AGE_STALE) {
            bitmap_t ranks;
            CELL_READ(bitmaps, md.cell, ranks);
            if (md.age == AGE_NEW) {
                ranks = 0;
            }
            if (ranks & md.bit_of_sender != 0) {
                md.again = 1;
            }
            ranks = ranks | md.bit_of_sender;
            CELL_WRITE(bitmaps, md.cell, ranks);
            if (ranks == md.all_ranks) {
                md.verdict = VERDICT_RESULT;
                if (md.again == 1) {
                    md.verdict = VERDICT_BACK;  // only this rank has missed the result
                }
            }
        }
    }
}
