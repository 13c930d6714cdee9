// SPDX-License-Identifier: Apache-2.0
// L2FWD: a bridge. The destination address decides the port.
#include "headers.p4"

struct headers_t {
    ethernet_h ethernet;
}

struct metadata_t {}

parser Parse(packet_in packet, out headers_t hdr, inout metadata_t md, inout standard_metadata_t standard) {
    state start {
        packet.extract(hdr.ethernet);
        transition accept;
    }
}

control Verify(inout headers_t hdr, inout metadata_t md) {
    apply {}
}

control Inward(inout headers_t hdr, inout metadata_t md, inout standard_metadata_t standard) {
    action drop() {
        mark_to_drop(standard);
    }

    action forward(port_t port) {
        standard.egress_spec = port;
    }

    @name(".stations")
    table stations {
        key = { hdr.ethernet.dst: exact @name("destination"); }
        actions = { forward; drop; }
        default_action = drop();
        size = 1024;
    }

    apply {
        stations.apply();
    }
}

control Outward(inout headers_t hdr, inout metadata_t md, inout standard_metadata_t standard) {
    apply {}
}

control Compute(inout headers_t hdr, inout metadata_t md) {
    apply {}
}

control Deparse(packet_out packet, in headers_t hdr) {
    apply {
        packet.emit(hdr);
    }
}

V1Switch(Parse(), Verify(), Inward(), Outward(), Compute(), Deparse()) main;
