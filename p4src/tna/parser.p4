// SPDX-License-Identifier: Apache-2.0
// From bytes to headers and back, in both pipelines. A state selects on 32 bits at most.
#ifndef RAILWEAVE_PARSER_P4
#define RAILWEAVE_PARSER_P4

parser IngressParse(packet_in packet, out tna_headers_t hdr, out tna_metadata_t meta,
                    out ingress_intrinsic_metadata_t intrinsic) {
    Checksum() ipv4_checksum;

    state start {
        packet.extract(intrinsic);
        packet.advance(PORT_METADATA_SIZE);
        meta.md.ingress_port = intrinsic.ingress_port;
        meta.from_trunk = 0;
        meta.own_source = 0;
        meta.checksum_wrong = false;
        meta.md.verdict = VERDICT_DROP;
        meta.md.rewritten = 0;
        meta.md.service = SERVICE_BRIDGE;
        meta.md.fault = FAULT_NONE;
        meta.md.member = 0;
        meta.md.role = ROLE_CHILD;
        meta.md.is_root = 0;
        meta.md.age = AGE_STALE;
        meta.md.again = 0;
        meta.md.complete = 0;
        meta.md.has_result = 0;
        meta.md.owner = 0;
        meta.md.bit_of_sender = 0;
        meta.ours = 0;
        meta.again_bit = 0;
        meta.before = 0;
        meta.missing = 0;
        meta.mark_difference = 0;
        meta.owner_before = 0;
        transition parse_ethernet;
    }

    state parse_ethernet {
        packet.extract(hdr.packet.ethernet);
        transition select(hdr.packet.ethernet.type) {
            ETHERTYPE_ARP: parse_arp;
            ETHERTYPE_IPV4: parse_ipv4;
            default: accept;
        }
    }

    state parse_arp {
        packet.extract(hdr.packet.arp);
        meta.md.address = hdr.packet.arp.target_ip;
        transition accept;
    }

    state parse_ipv4 {
        packet.extract(hdr.packet.ipv4);
        ipv4_checksum.add(hdr.packet.ipv4);
        meta.checksum_wrong = ipv4_checksum.verify();
        meta.md.address = hdr.packet.ipv4.dst;
        transition select(hdr.packet.ipv4.version, hdr.packet.ipv4.header_words, hdr.packet.ipv4.more_fragments,
                          hdr.packet.ipv4.fragment_offset, hdr.packet.ipv4.protocol) {
            (4, 5, 0, 0, PROTOCOL_ICMP): parse_icmp;
            (4, 5, 0, 0, PROTOCOL_UDP): measure;
            default: accept;
        }
    }

    state parse_icmp {
        packet.extract(hdr.packet.icmp);
        transition accept;
    }

    /* Lanes are extracted where both lengths, version and kind are right: compared one after the other. */
    state measure {
        transition select(hdr.packet.ipv4.total_length) {
            CHUNK_IPV4_BYTES: parse_chunk_udp;
            default: parse_udp;
        }
    }

    state parse_udp {
        packet.extract(hdr.packet.udp);
        transition select(hdr.packet.udp.dst_port) {
            INA_UDP_PORT: parse_ina;
            default: accept;
        }
    }

    state parse_ina {
        packet.extract(hdr.packet.ina);
        transition accept;
    }

    state parse_chunk_udp {
        packet.extract(hdr.packet.udp);
        transition select(hdr.packet.udp.dst_port, hdr.packet.udp.length) {
            (INA_UDP_PORT, CHUNK_UDP_BYTES): parse_chunk;
            (INA_UDP_PORT, _): parse_ina;
            default: accept;
        }
    }

    state parse_chunk {
        packet.extract(hdr.packet.ina);
        transition select(hdr.packet.ina.version, hdr.packet.ina.kind) {
            (INA_VERSION, KIND_CONTRIBUTE): parse_lanes;
            (INA_VERSION, KIND_RESULT): parse_lanes;
            default: accept;
        }
    }

    state parse_lanes {
        packet.extract(hdr.packet.lanes);
        transition accept;
    }
}

control IngressDeparse(packet_out packet, inout tna_headers_t hdr, in tna_metadata_t meta,
                       in ingress_intrinsic_metadata_for_deparser_t deparser) {
    apply {
        packet.emit(hdr);
    }
}

parser EgressParse(packet_in packet, out tna_headers_t hdr, out metadata_t md,
                   out egress_intrinsic_metadata_t intrinsic) {
    state start {
        packet.extract(intrinsic);
        packet.extract(hdr.bridge);
        packet.extract(hdr.packet.ethernet);
        md.egress_port = intrinsic.egress_port;
        md.egress_rid = intrinsic.egress_rid;
        md.ingress_port = hdr.bridge.ingress_port;
        md.verdict = hdr.bridge.verdict;
        md.role = hdr.bridge.role;
        md.member = hdr.bridge.member;
        md.rewritten = hdr.bridge.rewritten;
        md.owner = hdr.bridge.owner;
        md.lost = 0;
        transition select(hdr.bridge.content) {
            CONTENT_OPAQUE: accept;
            CONTENT_ICMP: parse_answer;
            default: parse_ipv4;
        }
    }

    state parse_answer {
        packet.extract(hdr.packet.ipv4);
        transition accept;
    }

    /* Without LANES_IN_EGRESS they are payload, which no copy can leave behind. */
    state parse_ipv4 {
        packet.extract(hdr.packet.ipv4);
        packet.extract(hdr.packet.udp);
        packet.extract(hdr.packet.ina);
#ifdef LANES_IN_EGRESS
        transition select(hdr.bridge.content) {
            CONTENT_LANES: parse_lanes;
            default: accept;
        }
    }

    state parse_lanes {
        packet.extract(hdr.packet.lanes);
#endif
        transition accept;
    }
}

control EgressDeparse(packet_out packet, inout tna_headers_t hdr, in metadata_t md,
                      in egress_intrinsic_metadata_for_deparser_t deparser) {
    Checksum() ipv4_checksum;

    apply {
        if (md.rewritten == 1) {
            hdr.packet.ipv4.checksum = ipv4_checksum.update(IPV4_FIELDS(hdr.packet.ipv4));
        }
        // One by one: what is emitted takes containers, even where it is never extracted.
        packet.emit(hdr.packet.ethernet);
        packet.emit(hdr.packet.ipv4);
        packet.emit(hdr.packet.udp);
        packet.emit(hdr.packet.ina);
#ifdef LANES_IN_EGRESS
        packet.emit(hdr.packet.lanes);
#endif
    }
}

#endif
