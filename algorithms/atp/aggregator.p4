// SPDX-License-Identifier: Apache-2.0
// Whose the aggregator is. A gradient takes a free one; the result frees it, and so does a gradient that is sent again,
// which carries what was held to the parameter server.

control Aggregator(in headers_t hdr, inout metadata_t md) {
    CELLS(bit<64>, owners, aggregator_owner);

    apply {
        bit<64> own = 16w1 ++ hdr.atp.job ++ hdr.atp.sequence;
        bit<64> held;
        CELL_READ(owners, md.cell, held);
        bit<1> ends = 0;
        if (hdr.atp.kind == ATP_RESULT || hdr.atp.flags & ATP_RESEND != 0) {
            ends = 1;
        }
        if (held == own) {
            md.age = AGE_SAME;
            if (ends == 1) {
                CELL_WRITE(owners, md.cell, 0);
            }
        } else if (held == 0 && ends == 0) {
            md.age = AGE_NEW;
            CELL_WRITE(owners, md.cell, own);
        } else {
            md.age = AGE_STALE;
        }
    }
}

/* Whose gradients are in it; then the packet says so. */
control AggregatorRanks(inout headers_t hdr, inout metadata_t md) {
    CELLS(bitmap_t, ranks, aggregator_ranks);

    apply {
        bitmap_t held;
        CELL_READ(ranks, md.cell, held);
        if (md.age == AGE_NEW) {
            held = 0;
        }
        if (held & md.bit_of_sender != 0) {
            md.again = 1;
        }
        hdr.atp.ranks = held | md.bit_of_sender;
        CELL_WRITE(ranks, md.cell, hdr.atp.ranks);
        if (hdr.atp.ranks == md.all_ranks) {
            md.complete = 1;
        }
    }
}
