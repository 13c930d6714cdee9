// SPDX-License-Identifier: Apache-2.0
// Which packets are summed: those of WRITEs on registered connections, of members, of switches below, and of the switch
// above. The key holds all that a sender must get right, the port that it arrives by included. What misses is forwarded
// like any other frame.

control Connections(in headers_t hdr, inout metadata_t md) {
    ENTRY_COUNTER(packets);

    /* `port` leads to the receiver. The complete sum goes to `mcast_group`: at the root, to all members; below it, to the
     * switch above. That one is a sender, too: its bit is RESULT_PRESENT, and its sum is for all members. */
    @name(".contributor")
    action contributor(group_t group, bit<16> member_number, bitmap_t member_bit, bitmap_t all_members, bit<16> slot_base,
                       bit<16> slot_mask, header_cell_t header_base, bit<32> epoch, psn_t first_psn, port_t port,
                       bit<1> is_root, mcast_t mcast_group) {
        md.taken = 1;
        md.group = group;
        md.member = member_number;
        md.bit_of_sender = member_bit;
        md.from_above = member_bit[31:31];
        md.all_children = all_members;
        md.epoch = epoch;
        md.index = hdr.bth.psn - first_psn;
        md.slot = md.index[15:0] & slot_mask;
        md.cell = (cell_t)(slot_base + md.slot);
        md.headers = header_base + (header_cell_t)md.slot;
        md.port = port;
        md.is_root = is_root;
        md.mcast_group = mcast_group;
    }

    @name(".connections")
    table connections {
        key = {
            md.ingress_port: exact @name("ingress_port");
            hdr.ethernet.dst: exact @name("mac");
            hdr.ipv4.src: exact @name("source");
            hdr.ipv4.dst: exact @name("destination");
            hdr.bth.qp: exact @name("qp");
        }
        actions = { contributor; @defaultonly NoAction; }
        default_action = NoAction();
        counters = packets;
        size = MAX_CONNECTIONS;
    }

    apply {
        if (hdr.bth.isValid() && hdr.bth.opcode >= WRITE_FIRST && hdr.bth.opcode <= WRITE_ONLY_IMMEDIATE) {
            connections.apply();
        }
    }
}
