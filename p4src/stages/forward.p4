// SPDX-License-Identifier: Apache-2.0
// An Ethernet bridge whose MAC table the controller fills in.

control Forward(in headers_t hdr, inout metadata_t md) {
    @name(".forward")
    action forward(port_t port) {
        md.verdict = VERDICT_UNICAST;
        md.port = port;
    }

    @name(".flood")
    action flood(mcast_t mcast_group) {
        md.verdict = VERDICT_FLOOD;
        md.mcast_group = mcast_group;
    }

    @name(".mac_table")
    table mac_table {
        key = { hdr.ethernet.dst: exact @name("destination"); }
        actions = { forward; @defaultonly flood; }
        default_action = flood(FLOOD_GROUP);
        size = MAX_MACS;
    }

    apply {
        mac_table.apply();
    }
}

/* A frame never leaves by the port that it came in by. */
control NoWayBack(inout metadata_t md) {
    apply {
        if (md.verdict == VERDICT_UNICAST && md.port == md.ingress_port) {
            md.verdict = VERDICT_DROP;
        }
    }
}
