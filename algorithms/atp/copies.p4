// SPDX-License-Identifier: Apache-2.0
// Egress: addresses each copy of a result to the worker that it is for.

control Copies(inout headers_t hdr, inout metadata_t md) {
    @name(".copy")
    action copy(mac_t dst_mac, ipv4_t dst_ip) {
        md.rewritten = 1;
        hdr.ethernet.dst = dst_mac;
        hdr.ipv4.dst = dst_ip;
        hdr.udp.checksum = 0;
    }

    @name(".nobody")
    action nobody() {
        md.lost = 1;
    }

    @name(".copies")
    table copies {
        key = {
            hdr.atp.job: exact @name("job");
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
