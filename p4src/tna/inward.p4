// SPDX-License-Identifier: Apache-2.0
// What ingress does, from members to a verdict.

control Inward(inout headers_t hdr, inout tna_metadata_t meta) {
    PACKET_COUNTER(GROUP_PACKETS, account_t, group_packets, group_packets);

    JOIN(bit<16>, path_up)
    JOIN(bit<8>, path_child)

    action prepare_path() {
        JOINED(path_up, meta.md.path_up, hdr.ina.slot[15 - PATH_STEP:0], hdr.ina.child[PATH_STEP - 1:0]);
        JOINED(path_child, meta.md.path_child, (bit<(8 - PATH_STEP)>)0, hdr.ina.slot[PATH_STEP - 1:0]);
    }

    action prepare() {
        meta.md.path_down = hdr.ina.slot >> PATH_STEP;
        meta.length_difference = hdr.ipv4.total_length - hdr.udp.length;
        meta.udp_lack = SPREAD_UDP_BYTES |-| hdr.udp.length;
        meta.claim = hdr.ina.child + 1;
        meta.plain_flags = hdr.ina.flags & SLOT_FLAGS;
    }

    action prepare_more() {
        meta.others = meta.md.all_children & ~meta.md.bit_of_sender;
        meta.mismatch_flags = meta.plain_flags | FLAG_MISMATCH;
    }

    apply {
        // Looked up before it is known whether they are needed: so all is ready when the first register is.
        Addressed.apply(hdr, meta);
        if (hdr.ina.isValid()) {
            prepare_path();
            prepare();
            Members.apply(hdr, meta.md);
        }

        Admit.apply(hdr, meta);
        prepare_more();
        FillLanes.apply(hdr, meta);
        SlotMembers.apply(meta);
        SlotMark.apply(hdr, meta);
        SlotOwner.apply(hdr, meta);
        SlotState.apply(meta);
        SlotFlags.apply(hdr, meta);
        Lanes.apply(hdr, meta);

        // One after the other, not nested: while a branch goes on from stage to stage no lane finds room there.
        if (meta.md.service == SERVICE_AGGREGATE) {
            Decide.apply(hdr, meta.md);
        }
        if (meta.md.service == SERVICE_BRIDGE) {
            Forward.apply(hdr, meta.md);
        }
        if (meta.md.member == 1) {
            group_packets.count(meta.md.group_place ++ meta.md.outcome);
        }
        if (meta.md.verdict == VERDICT_UP) {
            Uplinks.apply(hdr, meta.md);
        }
        if (meta.md.service == SERVICE_BRIDGE) {
            NoWayBack.apply(meta.md);
        }
        if (meta.md.verdict == VERDICT_BACK) {
            Turn.apply(hdr, meta.md);
        }
    }
}
