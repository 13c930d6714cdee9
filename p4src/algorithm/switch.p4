// SPDX-License-Identifier: Apache-2.0
// The rest of the switch, after the control `Algorithm`: members, copies of results, and all other frames.
#include "stages/injector.p4"
#include "stages/forward.p4"

/* The ranks, whose packets the algorithm gets. Counts of entries are packets of ranks. */
control Members(in headers_t hdr, inout metadata_t md, out bit<1> known) {
    ENTRY_COUNTER(packets);

    @name(".member")
    action member(bitmap_t rank_bit, bitmap_t all_ranks, mcast_t mcast_group, cell_t first_cell, cell_t cell_mask) {
        md.bit_of_sender = rank_bit;
        md.all_ranks = all_ranks;
        md.result_group = mcast_group;
        md.first_cell = first_cell;
        md.cell_mask = cell_mask;
    }

    @name(".members")
    table members {
        key = {
            md.ingress_port: exact @name("ingress_port");
            hdr.ipv4.src: exact @name("source");
            hdr.udp.dst_port: exact @name("udp_port");
        }
        actions = { member; @defaultonly NoAction; }
        default_action = NoAction();
        counters = packets;
        size = MAX_MEMBERS;
    }

    apply {
        known = 0;
        if (members.apply().hit) {
            known = 1;
        }
    }
}

/* Egress: addresses each copy of a result to its rank. The source is the next rank, to which this rank sends. */
control Copies(inout headers_t hdr, inout metadata_t md) {
    @name(".copy")
    action copy(mac_t dst_mac, ipv4_t dst_ip, mac_t src_mac, ipv4_t src_ip) {
        md.rewritten = 1;
        hdr.ethernet.dst = dst_mac;
        hdr.ethernet.src = src_mac;
        hdr.ipv4.dst = dst_ip;
        hdr.ipv4.src = src_ip;  // not the receiver's own, which its kernel would drop
        hdr.udp.checksum = 0;
    }

    @name(".nobody")
    action nobody() {
        md.lost = 1;
    }

    @name(".copies")
    table copies {
        key = {
            hdr.udp.dst_port: exact @name("udp_port");
            md.egress_rid: exact @name("egress_rid");
        }
        actions = { copy; @defaultonly nobody; }
        default_action = nobody();
        size = MAX_MEMBERS;
    }

    apply {
        copies.apply();
    }
}

control AlgorithmIngress(inout headers_t hdr, inout metadata_t md, inout standard_metadata_t standard) {
    apply {
        md.ingress_port = standard.ingress_port;
        md.checksum_error = standard.checksum_error;
        InjectorIngress.apply(md);
        if (md.lost == 0) {
            bit<1> known = 0;
            if (hdr.own.isValid()) {
                // Only members may use the algorithm's ports: a packet of anybody else is dropped.
                Members.apply(hdr, md, known);
                if (known == 1 && md.checksum_error == 0) {
                    hdr.udp.checksum = 0;  // none, because numbers change
                    Algorithm.apply(hdr, md);
                }
            }
            if (!hdr.own.isValid() || md.verdict == VERDICT_UNICAST) {
                Forward.apply(hdr, md);
                NoWayBack.apply(md);
            }
        }

        if (md.verdict == VERDICT_UNICAST) {
            standard.egress_spec = md.port;
        } else if (md.verdict == VERDICT_FLOOD) {
            standard.mcast_grp = md.mcast_group;
        } else if (md.verdict == VERDICT_RESULT) {
            standard.mcast_grp = md.result_group;
        } else if (md.verdict == VERDICT_BACK) {
            standard.egress_spec = md.ingress_port;
            mac_t mac = hdr.ethernet.dst;
            ipv4_t address = hdr.ipv4.dst;
            hdr.ethernet.dst = hdr.ethernet.src;
            hdr.ethernet.src = mac;
            hdr.ipv4.dst = hdr.ipv4.src;
            hdr.ipv4.src = address;  // the header's checksum stays the same
        } else {
            mark_to_drop(standard);
        }
    }
}

control AlgorithmEgress(inout headers_t hdr, inout metadata_t md, inout standard_metadata_t standard) {
    apply {
        md.egress_port = standard.egress_port;
        if (md.verdict == VERDICT_FLOOD && md.egress_port == md.ingress_port) {
            md.lost = 1;
        } else if (md.verdict == VERDICT_RESULT) {
            md.egress_rid = standard.egress_rid;
            Copies.apply(hdr, md);
        }
        if (md.lost == 0) {
            InjectorEgress.apply(md);
        }
        if (md.lost == 1) {
            mark_to_drop(standard);
        }
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

V1Switch(Parse(), VerifyIpv4(), AlgorithmIngress(), AlgorithmEgress(), UpdateIpv4(), Deparse()) main;
