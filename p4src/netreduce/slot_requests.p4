// SPDX-License-Identifier: Apache-2.0
// Which members have asked for an acknowledgement of their packet: each sender asks at places of its own choice.

control SlotRequests(in headers_t hdr, inout metadata_t md) {
    CELLS(bitmap_t, requests, slot_requests);

    apply {
        bitmap_t held;
        CELL_READ(requests, md.cell, held);
        if (md.age == AGE_NEW) {
            held = 0;
        }
        if (hdr.bth.ack_request == 1) {
            held = held | md.bit_of_sender;
        }
        CELL_WRITE(requests, md.cell, held);
        md.ack_requests = held;
    }
}
