// SPDX-License-Identifier: Apache-2.0
// Egress: gives each copy of a sum the headers of the connection that it travels on. `qp` is the receiver's; senders may
// have been told another number, one that no receiver has, so that nothing arrives that was not summed.

control Deliver(inout headers_t hdr, inout metadata_t md) {
    @name(".deliver")
    action deliver(mac_t src_mac, mac_t dst_mac, ipv4_t src_ip, ipv4_t dst_ip, bit<16> udp_port, qp_t qp,
                   psn_t first_psn, bitmap_t member_bit, header_cell_t header_base) {
        hdr.ethernet.src = src_mac;
        hdr.ethernet.dst = dst_mac;
        hdr.ipv4.src = src_ip;
        hdr.ipv4.dst = dst_ip;
        hdr.udp.src_port = udp_port;
        hdr.udp.checksum = 0;
        hdr.bth.qp = qp;
        hdr.bth.psn = first_psn + md.index;
        hdr.bth.ack_request = 0;
        if (md.ack_requests & member_bit != 0) {
            hdr.bth.ack_request = 1;
        }
        md.headers = header_base + (header_cell_t)md.slot;
        md.rewritten = 1;
    }

    @name(".nobody")
    action nobody() {
        md.lost = 1;
    }

    @name(".deliveries")
    table deliveries {
        key = {
            md.group: exact @name("group");
            md.member: exact @name("member");
        }
        actions = { deliver; @defaultonly nobody; }
        default_action = nobody();
        size = MAX_CONNECTIONS;
    }

    apply {
        if (deliveries.apply().hit) {
            OwnHeaders.apply(hdr, md);
            bit<32> computed;
            Icrc.apply(hdr, computed);
            hdr.icrc.value = computed;
        }
    }
}
