// SPDX-License-Identifier: Apache-2.0
// What only a member's own packet says: where its WRITE goes, and its immediate data. Kept at ingress until the sum
// leaves on that member's connection.

HEADER_CELLS_OF(bit<128>, kept_reths, kept_reth)
HEADER_CELLS_OF(bit<32>, kept_immediates, kept_immediate)

control KeepHeaders(in headers_t hdr, in metadata_t md) {
    apply {
        if (hdr.reth.isValid()) {
            CELL_WRITE(kept_reths, md.headers, hdr.reth.address ++ hdr.reth.rkey ++ hdr.reth.length);
        }
        if (hdr.immediate.isValid()) {
            CELL_WRITE(kept_immediates, md.headers, hdr.immediate.data);
        }
    }
}

control OwnHeaders(inout headers_t hdr, in metadata_t md) {
    apply {
        if (hdr.reth.isValid()) {
            bit<128> kept;
            CELL_READ(kept_reths, md.headers, kept);
            hdr.reth.address = kept[127:64];
            hdr.reth.rkey = kept[63:32];
            hdr.reth.length = kept[31:0];
        }
        if (hdr.immediate.isValid()) {
            CELL_READ(kept_immediates, md.headers, hdr.immediate.data);
        }
    }
}
