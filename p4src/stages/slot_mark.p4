// SPDX-License-Identifier: Apache-2.0
// The slot's mark says which collective call the chunk belongs to. The first contribution sets it, the others must
// agree; what leaves carries the slot's mark.

control SlotMark(inout headers_t hdr, inout metadata_t md) {
    CELLS(bit<32>, marks, slot_mark);

    apply {
        if (md.age == AGE_NEW) {
            CELL_WRITE(marks, md.cell, hdr.ina.mark);
        } else {
            bit<32> held;
            CELL_READ(marks, md.cell, held);
            if (held != hdr.ina.mark) {
                md.mismatch = 1;
                hdr.ina.mark = held;
            }
        }
    }
}
