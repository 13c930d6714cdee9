// SPDX-License-Identifier: Apache-2.0
// The slot's serial number: the packet is of the round in the slot, of a later one, or too late.

control SlotTag(in headers_t hdr, inout metadata_t md) {
    CELLS(bit<32>, tags, slot_tag);

    apply {
        bit<32> held;
        CELL_READ(tags, md.cell, held);
        bit<32> ahead = md.tag - held;  // RFC 1982: newer when the signed difference is positive
        if (ahead == 0) {
            md.age = AGE_SAME;
        } else if (ahead[31:31] == 0 && md.role == ROLE_CHILD) {
            // Only a contribution opens a round: the parent has no result of one in which this switch has no part.
            md.age = AGE_NEW;
            CELL_WRITE(tags, md.cell, md.tag);
        } else {
            md.age = AGE_STALE;
        }
    }
}
