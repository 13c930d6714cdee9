// SPDX-License-Identifier: Apache-2.0
// Packets that belong together are alike up to the BTH's partition: the first one's shape is the slot's, and
// another one's takes no part.

control SlotShape(in headers_t hdr, inout metadata_t md) {
    CELLS(bit<32>, shapes, slot_shape);

    apply {
        bit<32> shape = hdr.bth.opcode ++ hdr.bth.solicited ++ hdr.bth.migration ++ hdr.bth.padding ++ hdr.bth.version
            ++ hdr.bth.partition;
        if (md.age == AGE_NEW) {
            CELL_WRITE(shapes, md.cell, shape);
        } else {
            bit<32> held;
            CELL_READ(shapes, md.cell, held);
            if (held != shape) {
                md.fault = FAULT_SHAPE;
            }
        }
    }
}
