// SPDX-License-Identifier: Apache-2.0
// Whose packets the slot holds: those of this index, or of an earlier or a later one, of this group or another before or
// after it. Indices run over the top as PSNs do, and are compared as serial numbers (RFC 1982).

control SlotIndex(inout metadata_t md) {
    CELLS(bit<32>, epochs, slot_epoch);
    CELLS(psn_t, indices, slot_index);

    apply {
        bit<32> held_epoch;
        psn_t held_index;
        CELL_READ(epochs, md.cell, held_epoch);
        CELL_READ(indices, md.cell, held_index);
        bit<32> later = md.epoch - held_epoch;
        psn_t ahead = md.index - held_index;
        if (later == 0 && ahead == 0) {
            md.age = AGE_SAME;
        } else if (later == 0 && ahead[23:23] == 0 || later != 0 && later[31:31] == 0) {
            md.age = AGE_NEW;
            CELL_WRITE(epochs, md.cell, md.epoch);
            CELL_WRITE(indices, md.cell, md.index);
        } else {
            md.age = AGE_STALE;
        }
    }
}
