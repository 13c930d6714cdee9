// SPDX-License-Identifier: Apache-2.0
// The invariant CRC (InfiniBand Architecture Specification, annex A17): CRC-32 as of Ethernet over eight bytes of ones
// and the packet from the IPv4 header on, with ones for what may change on the way.

control Icrc(in headers_t hdr, out bit<32> value) {
    apply {
        bit<32> crc;
        // Headers that the packet has not got count for nothing. p4c copies what is in a list to be hashed; of headers
        // that is a copy each, of their fields it would be one per lane.
        CRC32(crc, {
            64w0xFFFFFFFFFFFFFFFF,
            hdr.ipv4.version, hdr.ipv4.header_words, 8w0xFF, hdr.ipv4.total_length, hdr.ipv4.identification,
            hdr.ipv4.reserved, hdr.ipv4.dont_fragment, hdr.ipv4.more_fragments, hdr.ipv4.fragment_offset,
            8w0xFF, hdr.ipv4.protocol, 16w0xFFFF, hdr.ipv4.src, hdr.ipv4.dst,
            hdr.udp.src_port, hdr.udp.dst_port, hdr.udp.length, 16w0xFFFF,
            hdr.bth.opcode, hdr.bth.solicited, hdr.bth.migration, hdr.bth.padding, hdr.bth.version, hdr.bth.partition,
            8w0xFF, hdr.bth.qp, hdr.bth.ack_request, hdr.bth.reserved, hdr.bth.psn,
            hdr.reth, hdr.immediate, hdr.lanes });
        value = crc[7:0] ++ crc[15:8] ++ crc[23:16] ++ crc[31:24];
    }
}
