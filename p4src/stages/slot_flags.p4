// SPDX-License-Identifier: Apache-2.0
// The slot's flags: those of all contributions together, and MISMATCH where their marks differ.

control SlotFlags(inout headers_t hdr, inout metadata_t md) {
    CELLS(bit<8>, flags, slot_flags);

    apply {
        bit<8> held;
        CELL_READ(flags, md.cell, held);
        if (md.again == 1) {
            hdr.ina.flags = held;  // a retransmission brings nothing new
        } else {
            if (md.age == AGE_NEW || md.role == ROLE_PARENT) {
                held = 0;  // the parent's flags are those of all contributions, ours among them
            }
            hdr.ina.flags = held | (hdr.ina.flags & SLOT_FLAGS);
            if (md.mismatch == 1) {
                hdr.ina.flags = hdr.ina.flags | FLAG_MISMATCH;
            }
            CELL_WRITE(flags, md.cell, hdr.ina.flags);
        }
    }
}
