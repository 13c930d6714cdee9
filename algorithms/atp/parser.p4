// SPDX-License-Identifier: Apache-2.0
// From bytes to headers and back. Header and lanes are extracted only if they are the whole rest of the packet.

parser Parse(packet_in packet, out headers_t hdr, inout metadata_t md, inout standard_metadata_t standard) {
    state start {
        packet.extract(hdr.ethernet);
        transition select(hdr.ethernet.type) {
            ETHERTYPE_IPV4: parse_ipv4;
            default: accept;
        }
    }

    state parse_ipv4 {
        packet.extract(hdr.ipv4);
        transition select(hdr.ipv4.version, hdr.ipv4.header_words, hdr.ipv4.more_fragments,
                          hdr.ipv4.fragment_offset, hdr.ipv4.protocol, hdr.ipv4.total_length) {
            (4, 5, 0, 0, PROTOCOL_UDP, IPV4_HEADER_BYTES + ATP_UDP_BYTES): parse_udp;
            default: accept;
        }
    }

    state parse_udp {
        packet.extract(hdr.udp);
        transition select(hdr.udp.dst_port, hdr.udp.length) {
            (ATP_UDP_PORT &&& ~(bit<16>)(ATP_PORTS - 1), ATP_UDP_BYTES): parse_atp;
            default: accept;
        }
    }

    state parse_atp {
        packet.extract(hdr.atp);
        packet.extract(hdr.lanes);
        transition accept;
    }
}

control VerifyIpv4(inout headers_t hdr, inout metadata_t md) {
    apply {
        verify_checksum(hdr.lanes.isValid(), IPV4_FIELDS(hdr.ipv4), hdr.ipv4.checksum, HashAlgorithm.csum16);
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
