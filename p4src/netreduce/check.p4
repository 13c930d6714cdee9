// SPDX-License-Identifier: Apache-2.0
// Is the packet whole? The parser extracts lanes only where they are all of the payload. What a bit error has touched
// must not get into a sum, under whose own ICRC nobody would notice.

control Check(in headers_t hdr, inout metadata_t md) {
    apply {
        if (!hdr.icrc.isValid()) {
            md.fault = FAULT_LENGTH;
        } else {
            bit<32> computed;
            Icrc.apply(hdr, computed);
            if (md.checksum_error == 1 || computed != hdr.icrc.value) {
                md.fault = FAULT_CHECKSUM;
            }
        }
    }
}
