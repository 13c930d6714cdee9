// SPDX-License-Identifier: Apache-2.0
// Looks at the packet alone: is it one that this program understands, and is it whole? The parser extracts lanes
// only where version, kind and both lengths are right. With FLAG_OWNER a packet may do without any.

control Check(in headers_t hdr, inout metadata_t md) {
    apply {
        if (!hdr.ina.isValid() || hdr.udp.length < PROBE_UDP_BYTES
                || hdr.ipv4.total_length != hdr.udp.length + IPV4_HEADER_BYTES) {
            md.fault = FAULT_LENGTH;  // before anything of it is believed: what follows could be Ethernet's padding
        } else if (hdr.ina.version != INA_VERSION) {
            md.fault = FAULT_VERSION;
        } else if (hdr.ina.kind > KIND_SPREAD) {
            md.fault = FAULT_KIND;
        } else if (hdr.ina.op > OP_MAX) {
            md.fault = FAULT_OP;
        } else if (hdr.ina.kind <= KIND_RESULT && !hdr.lanes.isValid()
                && (hdr.udp.length != BARE_UDP_BYTES || hdr.ina.flags & FLAG_OWNER == 0)) {
            md.fault = FAULT_LENGTH;
        } else if (hdr.ina.kind == KIND_SPREAD && hdr.udp.length < SPREAD_UDP_BYTES) {
            md.fault = FAULT_LENGTH;  // nothing in it
        }
    }
}

/* Is it in the role and in the range that its sender has? */
control CheckPlace(in headers_t hdr, inout metadata_t md) {
    apply {
        if (hdr.ina.kind <= KIND_RESULT) {
            if ((hdr.ina.kind == KIND_RESULT) != (md.role == ROLE_PARENT)) {
                md.fault = FAULT_ROLE;
            } else if (md.slot_excess != 0) {
                md.fault = FAULT_SLOT;
            }
        }
    }
}
