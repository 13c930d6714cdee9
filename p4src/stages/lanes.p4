// SPDX-License-Identifier: Apache-2.0
// The sums themselves: one register per lane, each touched once, after which the packet holds what the slot holds.

control Lanes(inout headers_t hdr, in metadata_t md) {
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
    hdr.lanes.lane_##n = hdr.lanes.lane_##n + held; \
    CELL_WRITE(cells_##n, md.cell, hdr.lanes.lane_##n);
    action add() {
        lane_t held;
        FOR_EACH_LANE(LANE_ADD)
    }

// max(a, b) = b + max(a - b, 0). Unsigned saturating subtraction gives the second term, exactly and without a branch,
// and flipping the sign bits turns the signed order into the unsigned one.
#define LANE_MAX(n) \
    CELL_READ(cells_##n, md.cell, held); \
    hdr.lanes.lane_##n = hdr.lanes.lane_##n + ((held ^ SIGN) |-| (hdr.lanes.lane_##n ^ SIGN)); \
    CELL_WRITE(cells_##n, md.cell, hdr.lanes.lane_##n);
    action max() {
        lane_t held;
        FOR_EACH_LANE(LANE_MAX)
    }

// Without lanes it contributes nothing: they are the identity of the op.
#define LANE_FILL(n) hdr.lanes.lane_##n = identity;
    action fill(lane_t identity) {
        hdr.lanes.setValid();
        hdr.ipv4.total_length = CHUNK_IPV4_BYTES;
        hdr.udp.length = CHUNK_UDP_BYTES;
        FOR_EACH_LANE(LANE_FILL)
    }

    apply {
        if (!hdr.lanes.isValid()) {
            if (hdr.ina.op == OP_SUM) {
                fill(0);
            } else {
                fill(SIGN);
            }
        }
        if (md.again == 1) {
            read();   // a retransmission must not count twice
        } else if (md.age == AGE_NEW || md.role == ROLE_PARENT) {
            write();  // the first contribution of a round, or the result from above
        } else if (hdr.ina.op == OP_SUM) {
            add();
        } else {
            max();
        }
    }
}
