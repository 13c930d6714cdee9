// SPDX-License-Identifier: Apache-2.0
// From bytes to headers and back. A frame that ends early leaves the header in question invalid and is bridged or
// refused like any other without it.
#ifndef RAILWEAVE_PARSER_P4
#define RAILWEAVE_PARSER_P4

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
        md.address = hdr.arp.target_ip;
        transition accept;
    }

    state parse_ipv4 {
        packet.extract(hdr.ipv4);
        md.address = hdr.ipv4.dst;
        // With options, or in fragments, it is not for this switch.
        transition select(hdr.ipv4.version, hdr.ipv4.header_words, hdr.ipv4.more_fragments,
                          hdr.ipv4.fragment_offset, hdr.ipv4.protocol) {
            (4, 5, 0, 0, PROTOCOL_ICMP): parse_icmp;
            (4, 5, 0, 0, PROTOCOL_UDP): parse_udp;
            default: accept;
        }
    }

    state parse_icmp {
        packet.extract(hdr.icmp);
        transition accept;
    }

    state parse_udp {
        packet.extract(hdr.udp);
        transition select(hdr.udp.dst_port) {
            INA_UDP_PORT: parse_ina;
            default: accept;
        }
    }

    state parse_ina {
        packet.extract(hdr.ina);
        transition select(hdr.ina.version, hdr.ina.kind, hdr.ipv4.total_length, hdr.udp.length) {
            (INA_VERSION, KIND_CONTRIBUTE, CHUNK_IPV4_BYTES, CHUNK_UDP_BYTES): parse_lanes;
            (INA_VERSION, KIND_RESULT, CHUNK_IPV4_BYTES, CHUNK_UDP_BYTES): parse_lanes;
            default: accept;
        }
    }

    state parse_lanes {
        packet.extract(hdr.lanes);
        transition accept;
    }
}

control VerifyIpv4(inout headers_t hdr, inout metadata_t md) {
    apply {
        verify_checksum(hdr.ipv4.isValid() && hdr.ipv4.header_words == 5,
                        IPV4_FIELDS(hdr.ipv4), hdr.ipv4.checksum, HashAlgorithm.csum16);
    }
}

control UpdateIpv4(inout headers_t hdr, inout metadata_t md) {
    apply {
        // Only where this switch wrote the header: bridged packets keep their checksum, right or wrong.
        update_checksum(md.rewritten == 1, IPV4_FIELDS(hdr.ipv4), hdr.ipv4.checksum, HashAlgorithm.csum16);
    }
}

control Deparse(packet_out packet, in headers_t hdr) {
    apply {
        packet.emit(hdr);
    }
}

#endif
