// SPDX-License-Identifier: Apache-2.0
// The frame around an algorithm: its packet, its fields, and the parser. A control `Algorithm` and switch.p4 follow.
// With `#define BARE_PACKETS` before this file, a packet may also end behind the algorithm's header. Then hdr.lanes is not
// valid, and AddLanes makes room for the numbers of a result.
#ifndef RAILWEAVE_ALGORITHM_FRAME_P4
#define RAILWEAVE_ALGORITHM_FRAME_P4

const bit<16> ALGORITHM_UDP_BYTES = UDP_HEADER_BYTES + ALGORITHM_HEADER_BYTES + 4 * LANES;
#ifdef BARE_PACKETS
const bit<16> ALGORITHM_BARE_UDP_BYTES = UDP_HEADER_BYTES + ALGORITHM_HEADER_BYTES;
#endif

struct headers_t {
    ethernet_h ethernet;
    ipv4_h ipv4;
    udp_h udp;
    algorithm_h own;
    lanes_h lanes;
#ifdef WIDE_RESULTS
    lanes_h more;  // never in a packet of a rank; the algorithm may add it
#endif
}

struct metadata_t {
    /* From the target. */
    port_t ingress_port;
    port_t egress_port;
    bit<16> egress_rid;      // which copy of a multicast packet this is
    bit<1> checksum_error;   // the IPv4 header does not add up

    /* The sender, from `members`. A packet of another sender never reaches the algorithm. */
    bitmap_t bit_of_sender;
    bitmap_t all_ranks;      // of the job, behind this switch
    mcast_t result_group;    // leads to all ranks of the job
    cell_t first_cell;       // of the job's cells in each register
    cell_t cell_mask;        // their number, a power of two, less 1

    /* Decisions of the algorithm: VERDICT_DROP (0), VERDICT_BACK to the sender, VERDICT_RESULT to all ranks of the job,
     * VERDICT_UNICAST towards the packet's destination. */
    verdict_t verdict;

    /* For the control Sums. */
    cell_t cell;
    age_t age;               // AGE_NEW: the packet's numbers replace the cell's
    bit<1> again;            // the sender's numbers are in already: the packet only gets the cell's

    /* For forwarding. */
    port_t port;
    mcast_t mcast_group;
    bit<32> loss;
    bit<1> lost;
    bit<1> rewritten;        // the IPv4 header was changed

    own_t own;
}

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
            (4, 5, 0, 0, PROTOCOL_UDP, IPV4_HEADER_BYTES + ALGORITHM_UDP_BYTES): parse_udp;
#ifdef BARE_PACKETS
            (4, 5, 0, 0, PROTOCOL_UDP, IPV4_HEADER_BYTES + ALGORITHM_BARE_UDP_BYTES): parse_bare_udp;
#endif
            default: accept;
        }
    }

    state parse_udp {
        packet.extract(hdr.udp);
        transition select(hdr.udp.dst_port, hdr.udp.length) {
            (ALGORITHM_PORT &&& ~(bit<16>)(ALGORITHM_PORTS - 1), ALGORITHM_UDP_BYTES): parse_own;
            default: accept;
        }
    }

    state parse_own {
        packet.extract(hdr.own);
        packet.extract(hdr.lanes);
        transition accept;
    }

#ifdef BARE_PACKETS
    state parse_bare_udp {
        packet.extract(hdr.udp);
        transition select(hdr.udp.dst_port, hdr.udp.length) {
            (ALGORITHM_PORT &&& ~(bit<16>)(ALGORITHM_PORTS - 1), ALGORITHM_BARE_UDP_BYTES): parse_bare;
            default: accept;
        }
    }

    state parse_bare {
        packet.extract(hdr.own);
        transition accept;
    }
#endif
}

#ifdef BARE_PACKETS
/* Gives lanes to a packet without. Their values are undefined. */
control AddLanes(inout headers_t hdr, inout metadata_t md) {
    apply {
        hdr.lanes.setValid();
        hdr.udp.length = ALGORITHM_UDP_BYTES;
        hdr.ipv4.total_length = IPV4_HEADER_BYTES + ALGORITHM_UDP_BYTES;
        md.rewritten = 1;
    }
}
#endif

control VerifyIpv4(inout headers_t hdr, inout metadata_t md) {
    apply {
        verify_checksum(hdr.own.isValid(), IPV4_FIELDS(hdr.ipv4), hdr.ipv4.checksum, HashAlgorithm.csum16);
    }
}

#endif
