// SPDX-License-Identifier: Apache-2.0
// Egress: a result with FLAG_OWNER leaves without lanes, unless it is for the child on whose side the owner is. One
// that reports a mismatch is for all.

control Bare(inout headers_t hdr, in metadata_t md) {
    apply {
        if (hdr.ina.flags & (FLAG_OWNER | FLAG_MISMATCH) == FLAG_OWNER && md.owner != hdr.ina.child + 1) {
            hdr.lanes.setInvalid();
            hdr.ipv4.total_length = BARE_IPV4_BYTES;
            hdr.udp.length = BARE_UDP_BYTES;
        }
    }
}
