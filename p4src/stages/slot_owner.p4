// SPDX-License-Identifier: Apache-2.0
// On which child's side of the tree the chunk's owner is: a contribution with FLAG_OWNER says so. A chunk has one owner
// at most, so that two are contributions to different calls.

control SlotOwner(in headers_t hdr, inout metadata_t md) {
    CELLS(bit<8>, owners, slot_owner);

    apply {
        bit<8> held;
        CELL_READ(owners, md.cell, held);
        if (md.age == AGE_NEW) {
            held = 0;
        }
        if (md.again == 0) {
            if (md.role == ROLE_PARENT) {
                if (!hdr.lanes.isValid()) {
                    held = 0;  // the slot has our part of the sum only, which must not leave as a result
                }
            } else if (hdr.ina.flags & FLAG_OWNER != 0) {
                if (held != 0) {
                    md.mismatch = 1;
                }
                held = hdr.ina.child + 1;
            }
            CELL_WRITE(owners, md.cell, held);
        }
        md.owner = held;
    }
}
