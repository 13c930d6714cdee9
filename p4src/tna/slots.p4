// SPDX-License-Identifier: Apache-2.0
// The slots' registers: each is one stateful ALU, which reads, computes and writes a cell once per packet, by one of
// four programs at most. What stages/slot_*.p4 choose by conditions, tables choose here.

/* Which children are in, and whether the parent's result is. */
control SlotMembers(inout tna_metadata_t meta) {
    CELLS(bitmap_t, seen, slot_seen);

    CELL_UPDATE(bitmap_t, seen, first, held, held = meta.md.bit_of_sender;)

    CELL_ACTION(bitmap_t, seen, join, bitmap_t, held, before, before = held; held = held | meta.md.bit_of_sender;)

    action new_round() {
        UPDATE(first, meta.md.cell);
        meta.missing = meta.others;
    }

    action same_round() {
        EXECUTE(join, meta.md.cell, meta.before);
        meta.again_bit = meta.before & meta.md.bit_of_sender;
        meta.missing = meta.others & ~meta.before;
    }

    table members_of_slot {
        key = { meta.md.age: exact; }
        actions = { new_round; same_round; @defaultonly NoAction; }
        const default_action = NoAction();
        const entries = {
            AGE_NEW: new_round();
            AGE_SAME: same_round();
        }
    }

    apply {
        members_of_slot.apply();
    }
}

/* Which collective call the chunk belongs to. */
control SlotMark(inout headers_t hdr, inout tna_metadata_t meta) {
    CELLS(bit<32>, marks, slot_mark);

    CELL_UPDATE(bit<32>, marks, write, held, held = hdr.ina.mark;)

    CELL_ACTION(bit<32>, marks, read, bit<32>, held, mark, mark = held;)

    action new_round() {
        UPDATE(write, meta.md.cell);
    }

    action same_round() {
        bit<32> held;
        EXECUTE(read, meta.md.cell, held);
        meta.mark_difference = hdr.ina.mark ^ held;
        hdr.ina.mark = held;
    }

    table mark_of_slot {
        key = { meta.md.age: exact; }
        actions = { new_round; same_round; @defaultonly NoAction; }
        const default_action = NoAction();
        const entries = {
            AGE_NEW: new_round();
            AGE_SAME: same_round();
        }
    }

    apply {
        mark_of_slot.apply();
    }
}

/* On which child's side the chunk's owner is. */
control SlotOwner(in headers_t hdr, inout tna_metadata_t meta) {
    CELLS(bit<8>, owners, slot_owner);

    CELL_ACTION(bit<8>, owners, write, bit<8>, held, before, before = held; held = meta.claim;)

    CELL_UPDATE(bit<8>, owners, set, held, held = meta.claim;)

    CELL_UPDATE(bit<8>, owners, clear, held, held = 0;)

    CELL_ACTION(bit<8>, owners, read, bit<8>, held, owner, owner = held;)

    action first() {
        UPDATE(set, meta.md.cell);
        meta.md.owner = meta.claim;
    }

    action claim() {
        EXECUTE(write, meta.md.cell, meta.owner_before);
        meta.md.owner = meta.claim;
    }

    action nobody() {
        UPDATE(clear, meta.md.cell);
    }

    action known() {
        EXECUTE(read, meta.md.cell, meta.md.owner);
    }

    table owner_of_slot {
        key = {
            meta.md.age: ternary;
            meta.again_bit: ternary;
            meta.md.role: ternary;
            hdr.lanes.isValid(): ternary;
            hdr.ina.flags: ternary;
        }
        actions = { first; claim; nobody; known; @defaultonly NoAction; }
        const default_action = NoAction();
        const entries = {
            (AGE_NEW,  _, _,           _,     FLAG_OWNER &&& FLAG_OWNER): first();
            (AGE_NEW,  _, _,           _,     _): nobody();
            (AGE_SAME, 0, ROLE_CHILD,  _,     FLAG_OWNER &&& FLAG_OWNER): claim();
            (AGE_SAME, 0, ROLE_PARENT, false, _): nobody();  // the slot has our part of the sum only
            (AGE_SAME, _, _,           _,     _): known();
        }
    }

    apply {
        owner_of_slot.apply();
    }
}

/* Differences become bits, for the tables behind. What is sent again adds no flags. */
control SlotState(inout tna_metadata_t meta) {
    action again() {
        meta.md.again = 1;
        meta.plain_flags = 0;
    }

    table again_in_slot {
        key = {
            meta.md.age: ternary;
            meta.again_bit: ternary;
        }
        actions = { again; NoAction; }
        const default_action = NoAction();
        const entries = {
            (AGE_SAME, 0): NoAction();
            (AGE_SAME, _): again();
        }
    }

    apply {
        again_in_slot.apply();
        if (meta.missing == 0) {
            meta.md.complete = 1;
        }
        if (meta.before & RESULT_PRESENT != 0) {
            meta.md.has_result = 1;
        }
    }
}

/* The flags of all contributions together. */
control SlotFlags(inout headers_t hdr, inout tna_metadata_t meta) {
    CELLS(bit<8>, flags, slot_flags);

    CELL_ACTION(bit<8>, flags, write_plain, bit<8>, held, now, held = meta.plain_flags; now = held;)

    CELL_ACTION(bit<8>, flags, write_mismatch, bit<8>, held, now, held = meta.mismatch_flags; now = held;)

    CELL_ACTION(bit<8>, flags, add_plain, bit<8>, held, now, held = held | meta.plain_flags; now = held;)

    CELL_ACTION(bit<8>, flags, add_mismatch, bit<8>, held, now, held = held | meta.mismatch_flags; now = held;)

    action set() {
        EXECUTE(write_plain, meta.md.cell, hdr.ina.flags);
    }

    action set_mismatch() {
        EXECUTE(write_mismatch, meta.md.cell, hdr.ina.flags);
    }

    action add() {
        EXECUTE(add_plain, meta.md.cell, hdr.ina.flags);
    }

    action mismatch() {
        EXECUTE(add_mismatch, meta.md.cell, hdr.ina.flags);
    }

    table flags_of_slot {
        key = {
            meta.md.age: ternary;
            meta.md.again: ternary;
            meta.md.role: ternary;
            meta.mark_difference: ternary;
            meta.owner_before: ternary;
        }
        actions = { set; set_mismatch; add; mismatch; @defaultonly NoAction; }
        const default_action = NoAction();
        const entries = {
            (AGE_NEW,  _, _,           _, _): set();
            (AGE_SAME, 1, _,           _, _): add();  // nothing
            (AGE_SAME, _, ROLE_CHILD,  0, 0): add();
            (AGE_SAME, _, ROLE_CHILD,  _, _): mismatch();
            (AGE_SAME, _, ROLE_PARENT, 0, _): set();  // the parent's flags are those of all contributions
            (AGE_SAME, _, ROLE_PARENT, _, _): set_mismatch();
        }
    }

    apply {
        flags_of_slot.apply();
    }
}
