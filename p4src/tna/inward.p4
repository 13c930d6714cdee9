// SPDX-License-Identifier: Apache-2.0
// What ingress does, from members to a verdict.

control Inward(inout headers_t hdr, inout tna_metadata_t meta) {
    PACKET_COUNTER(GROUP_PACKETS, account_t, group_packets, group_packets);
    PORT_COUNTER(forged_sources, forged_sources);

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

    /* Drop the frame: it is not bridged, and not counted as a member's. */
    action forged() {
        meta.md.service = SERVICE_ANSWERED;
        meta.md.member = 0;
    }

    apply {
        // Looked up before it is known whether they are needed: so all is ready when the first register is.
        Guard.apply(hdr, meta.md.ingress_port, meta.from_trunk, meta.own_source);
        Addressed.apply(hdr, meta);
        if (hdr.ina.isValid()) {
            prepare_path();
            prepare();
            Members.apply(hdr, meta.md);
        }

        if (meta.from_trunk == 1 || meta.own_source == 1) {
            Admit.apply(hdr, meta);
        } else {
            forged();
        }
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
        // Not in `forged`: bfas warns that an action that counts there shares instructions with the tables of Admit.
        if (meta.from_trunk == 0 && meta.own_source == 0) {
            forged_sources.count(meta.md.ingress_port);
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
