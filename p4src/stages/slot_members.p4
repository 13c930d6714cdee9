// SPDX-License-Identifier: Apache-2.0
// The slot's bitmap: which children are in, and whether the parent's result is (RESULT_PRESENT).

control SlotMembers(inout metadata_t md) {
    CELLS(bitmap_t, seen, slot_seen);

    apply {
        bitmap_t held;
        CELL_READ(seen, md.cell, held);
        if (md.age == AGE_NEW) {
            held = 0;
        }
        bitmap_t now = held | md.bit_of_sender;
        CELL_WRITE(seen, md.cell, now);
        if (now == held) {
            md.again = 1;
        }
        if ((now & ~RESULT_PRESENT) == md.all_children) {
            md.complete = 1;
        }
        md.has_result = now[31:31];
    }
}
