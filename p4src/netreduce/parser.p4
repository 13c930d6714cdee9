// SPDX-License-Identifier: Apache-2.0
// From bytes to headers and back. Lanes and ICRC are extracted only if they are the whole rest of the packet.

parser Parse(packet_in packet, out headers_t hdr, inout metadata_t md, inout standard_metadata_t standard) {
    state start {
        packet.extract(hdr.ethernet);
        transition select(hdr.ethernet.type) {
            ETHERTYPE_ARP: parse_arp;
            ETHERTYPE_IPV4: parse_ipv4;
            default: accept;
        }
    }

    state parse_arp {
        packet.extract(hdr.arp);
        transition accept;
    }

    state parse_ipv4 {
        packet.extract(hdr.ipv4);
        // With options, or in fragments, it is nothing that an RDMA NIC sends.
        transition select(hdr.ipv4.version, hdr.ipv4.header_words, hdr.ipv4.more_fragments,
                          hdr.ipv4.fragment_offset, hdr.ipv4.protocol) {
            (4, 5, 0, 0, PROTOCOL_UDP): parse_udp;
            default: accept;
        }
    }

    state parse_udp {
        packet.extract(hdr.udp);
        transition select(hdr.udp.dst_port) {
            ROCE_UDP_PORT: parse_bth;
            default: accept;
        }
    }

    state parse_bth {
        packet.extract(hdr.bth);
        transition select(hdr.bth.opcode, hdr.bth.padding, hdr.bth.version, hdr.udp.length, hdr.ipv4.total_length) {
            (WRITE_FIRST, 0, 0, START_BYTES, IPV4_HEADER_BYTES + START_BYTES): parse_reth;
            (WRITE_MIDDLE, 0, 0, PART_BYTES, IPV4_HEADER_BYTES + PART_BYTES): parse_lanes;
            (WRITE_LAST, 0, 0, PART_BYTES, IPV4_HEADER_BYTES + PART_BYTES): parse_lanes;
            (WRITE_LAST_IMMEDIATE, 0, 0, PART_BYTES + IMMEDIATE_BYTES,
                IPV4_HEADER_BYTES + PART_BYTES + IMMEDIATE_BYTES): parse_immediate;
            (WRITE_ONLY, 0, 0, START_BYTES, IPV4_HEADER_BYTES + START_BYTES): parse_reth;
            (WRITE_ONLY_IMMEDIATE, 0, 0, START_BYTES + IMMEDIATE_BYTES,
                IPV4_HEADER_BYTES + START_BYTES + IMMEDIATE_BYTES): parse_reth;
            default: accept;
        }
    }

    state parse_reth {
        packet.extract(hdr.reth);
        transition select(hdr.bth.opcode) {
            WRITE_ONLY_IMMEDIATE: parse_immediate;
            default: parse_lanes;
        }
    }

    state parse_immediate {
        packet.extract(hdr.immediate);
        transition parse_lanes;
    }

    state parse_lanes {
        packet.extract(hdr.lanes);
        packet.extract(hdr.icrc);
        transition accept;
    }
}

control VerifyIpv4(inout headers_t hdr, inout metadata_t md) {
    apply {
        verify_checksum(hdr.icrc.isValid(), IPV4_FIELDS(hdr.ipv4), hdr.ipv4.checksum, HashAlgorithm.csum16);
    }
}

control UpdateIpv4(inout headers_t hdr, inout metadata_t md) {
    apply {
        update_checksum(md.rewritten == 1, IPV4_FIELDS(hdr.ipv4), hdr.ipv4.checksum, HashAlgorithm.csum16);
    }
}

control Deparse(packet_out packet, in headers_t hdr) {
    apply {
        packet.emit(hdr);
    }
}
