// SPDX-License-Identifier: Apache-2.0
// Who may touch which slots, and send to which group. The key holds all that a sender must get right, the port that
// it arrives by included: what misses is a stranger's and reaches neither a register nor anybody.

control Members(in headers_t hdr, inout metadata_t md) {
    ENTRY_COUNTER(packets);

    action place(bit<16> slot_base) {
        COUNT_ENTRY(packets);
        md.member = 1;
        md.group_place = slot_base[SLOT_BITS - 1:LOG_GROUP_STEP];
    }

    /* One of the group's children: a host, or a switch below. */
    @name(".contributor")
    action contributor(bitmap_t child_bit, bitmap_t all_children, bit<16> slot_base, bit<16> slot_mask,
                       bit<32> start, bit<1> is_root, mcast_t mcast_group, mcast_t spread_group) {
        place(slot_base);
        md.role = ROLE_CHILD;
        md.bit_of_sender = child_bit;
        md.all_children = all_children;
        md.cell = (cell_t)(slot_base + hdr.ina.slot);
        md.slot_excess = hdr.ina.slot & ~slot_mask;
        md.tag = start + hdr.ina.round;
        md.is_root = is_root;
        md.mcast_group = mcast_group;
        md.spread_group = spread_group;
    }

    /* The switch above: its result counts as one more bit of the bitmap. */
    @name(".parent")
    action parent(bit<16> slot_base, bit<16> slot_mask, bit<32> start, mcast_t mcast_group) {
        place(slot_base);
        md.role = ROLE_PARENT;
        md.bit_of_sender = RESULT_PRESENT;
        md.cell = (cell_t)(slot_base + hdr.ina.slot);
        md.slot_excess = hdr.ina.slot & ~slot_mask;
        md.tag = start + hdr.ina.round;
        md.mcast_group = mcast_group;
        md.spread_group = mcast_group;
    }

    @name(".stranger")
    action stranger() {
        COUNT_ENTRY(packets);
        md.fault = FAULT_STRANGER;
    }

    @name(".members")
    table members {
        key = {
            hdr.ina.group: exact @name("group");
            md.ingress_port: exact @name("ingress_port");
            hdr.ina.child: exact @name("child");
            hdr.ipv4.src: exact @name("source");
        }
        actions = { contributor; parent; @defaultonly stranger; }
        default_action = stranger();
        counters = packets;
        size = MAX_MEMBERS;
    }

    apply {
        members.apply();
    }
}
