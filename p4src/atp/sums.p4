// SPDX-License-Identifier: Apache-2.0
// The sums themselves: one register per lane, each touched once, after which the packet holds what the aggregator holds.
// Sums saturate, so that the parameter server can tell one that has not fitted.

control Sums(inout headers_t hdr, in metadata_t md) {
#define LANE_REGISTER(n) CELLS(lane_t, cells_##n, lane_##n);
    FOR_EACH_LANE(LANE_REGISTER)

#define LANE_WRITE(n) CELL_WRITE(cells_##n, md.cell, hdr.lanes.lane_##n);
    action write() {
        FOR_EACH_LANE(LANE_WRITE)
    }

#define LANE_READ(n) CELL_READ(cells_##n, md.cell, hdr.lanes.lane_##n);
    action read() {
        FOR_EACH_LANE(LANE_READ)
    }

#define LANE_ADD(n) \
    CELL_READ(cells_##n, md.cell, held); \
    hdr.lanes.lane_##n = (lane_t)((int<32>)hdr.lanes.lane_##n |+| (int<32>)held); \
    CELL_WRITE(cells_##n, md.cell, hdr.lanes.lane_##n);
    action add() {
        lane_t held;
        FOR_EACH_LANE(LANE_ADD)
    }

    apply {
        hdr.udp.checksum = 0;  // none, which is cheaper than a sum over all lanes
        if (md.again == 1) {
            read();   // a packet that is sent again must not count twice
        } else if (md.age == AGE_NEW) {
            write();
        } else {
            add();
        }
    }
}
