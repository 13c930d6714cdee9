// SPDX-License-Identifier: Apache-2.0
// The sums themselves. A lane's table has the same key as its neighbours', so that all can sit in any stage.

/* Without lanes it contributes nothing: they are the identity of the op. */
control FillLanes(inout headers_t hdr, in tna_metadata_t meta) {
#define LANE_FILL(n) hdr.lanes.lane_##n = identity;
    action fill(lane_t identity) {
        hdr.lanes.setValid();
        hdr.ipv4.total_length = CHUNK_IPV4_BYTES;
        hdr.udp.length = CHUNK_UDP_BYTES;
        FOR_EACH_LANE(LANE_FILL)
    }

    apply {
        if (meta.md.age != AGE_STALE && meta.md.role == ROLE_CHILD && !hdr.lanes.isValid()) {
            if (hdr.ina.op == OP_SUM) {
                fill(0);
            } else {
                fill(SIGN);
            }
        }
    }
}

control Lanes(inout headers_t hdr, in tna_metadata_t meta) {
#define LANE(n) \
    CELLS(lane_t, cells_##n, lane_##n); \
    CELL_UPDATE(lane_t, cells_##n, write_##n, held, held = hdr.lanes.lane_##n;) \
    CELL_ACTION(lane_t, cells_##n, read_##n, lane_t, held, now, now = held;) \
    CELL_ACTION(lane_t, cells_##n, add_##n, lane_t, held, now, held = held + hdr.lanes.lane_##n; now = held;) \
    CELL_ACTION(lane_t, cells_##n, max_##n, lane_t, held, now, \
        if ((int<32>)held < (int<32>)hdr.lanes.lane_##n) { held = hdr.lanes.lane_##n; } \
        now = held;) \
    action set_##n() { UPDATE(write_##n, meta.md.cell); } \
    action get_##n() { EXECUTE(read_##n, meta.md.cell, hdr.lanes.lane_##n); } \
    action sum_##n() { EXECUTE(add_##n, meta.md.cell, hdr.lanes.lane_##n); } \
    action greater_##n() { EXECUTE(max_##n, meta.md.cell, hdr.lanes.lane_##n); } \
    table lane_of_slot_##n { \
        key = { \
            meta.md.age: ternary; \
            meta.again_bit: ternary; \
            meta.md.role: ternary; \
            hdr.lanes.isValid(): ternary; \
            hdr.ina.op: ternary; \
        } \
        actions = { set_##n; get_##n; sum_##n; greater_##n; NoAction; } \
        const default_action = NoAction(); \
        const entries = { \
            (_,        _, _,           false, _): NoAction(); \
            (AGE_NEW,  _, _,           _,     _): set_##n(); \
            (AGE_SAME, 0, ROLE_PARENT, _,     _): set_##n(); \
            (AGE_SAME, 0, _,           _,     OP_SUM): sum_##n(); \
            (AGE_SAME, 0, _,           _,     _): greater_##n(); \
            (AGE_SAME, _, _,           _,     _): get_##n(); \
        } \
    }
    FOR_EACH_LANE(LANE)

#define LANE_APPLY(n) lane_of_slot_##n.apply();
    apply {
        FOR_EACH_LANE(LANE_APPLY)
    }
}
