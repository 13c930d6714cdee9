// SPDX-License-Identifier: Apache-2.0
// The sums themselves, one lane per register or two. All their tables have the same key, so that each can sit in any
// stage.

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
#if LANES == 32
#define FOR_EACH_CELL(X) FOR_EACH_LANE(X)
#define LANE(n) \
    CELLS(lane_t, cells_##n, lane_##n); \
    CELL_UPDATE(lane_t, cells_##n, write_##n, held, held = hdr.lanes.lane_##n;) \
    CELL_ACTION(lane_t, cells_##n, read_##n, lane_t, held, now, now = held;) \
    CELL_ACTION(lane_t, cells_##n, add_##n, lane_t, held, now, held = held + hdr.lanes.lane_##n; now = held;) \
    CELL_ACTION(lane_t, cells_##n, max_##n, lane_t, held, now, \
        if ((int<32>)held < (int<32>)hdr.lanes.lane_##n) { held = hdr.lanes.lane_##n; } \
        now = held;) \
    LANE_TABLE(n)
#elif LANES == 64
#define PAIR_ROW(X, h) \
    X(h##0, h##1) X(h##2, h##3) X(h##4, h##5) X(h##6, h##7) X(h##8, h##9) X(h##A, h##B) X(h##C, h##D) X(h##E, h##F)
#define FOR_EACH_CELL(X) PAIR_ROW(X, 0) PAIR_ROW(X, 1) PAIR_ROW(X, 2) PAIR_ROW(X, 3)
#define LANE(n, m) \
    PAIRS(cells_##n, n, m); \
    PAIR_UPDATE(cells_##n, write_##n, held, \
        held.first = hdr.lanes.lane_##n; \
        held.second = hdr.lanes.lane_##m;) \
    PAIR_ACTION(cells_##n, read_##n, held,) \
    PAIR_ACTION(cells_##n, add_##n, held, \
        held.first = held.first + hdr.lanes.lane_##n; \
        held.second = held.second + hdr.lanes.lane_##m;) \
    PAIR_ACTION(cells_##n, max_##n, held, \
        if ((int<32>)held.first < (int<32>)hdr.lanes.lane_##n) { held.first = hdr.lanes.lane_##n; } \
        if ((int<32>)held.second < (int<32>)hdr.lanes.lane_##m) { held.second = hdr.lanes.lane_##m; }) \
    LANE_TABLE(n, hdr.lanes.lane_##m)
#endif
#define LANE_TABLE(n, ...) \
    action set_##n() { UPDATE(write_##n, meta.md.cell); } \
    action get_##n() { EXECUTE(read_##n, meta.md.cell, hdr.lanes.lane_##n, ##__VA_ARGS__); } \
    action sum_##n() { EXECUTE(add_##n, meta.md.cell, hdr.lanes.lane_##n, ##__VA_ARGS__); } \
    action greater_##n() { EXECUTE(max_##n, meta.md.cell, hdr.lanes.lane_##n, ##__VA_ARGS__); } \
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
    FOR_EACH_CELL(LANE)

#define LANE_APPLY(n, ...) lane_of_slot_##n.apply();
    apply {
        FOR_EACH_CELL(LANE_APPLY)
    }
}
