// SPDX-License-Identifier: Apache-2.0
// The smallest program: it joins ports 1 and 2, and ports 3 and 4. Nearly all its cost is packet I/O.
#include <core.p4>
#include <v1model.p4>

struct headers_t {}
struct metadata_t {}

parser PatchParser(packet_in packet, out headers_t hdr, inout metadata_t md, inout standard_metadata_t std) {
    state start { transition accept; }
}

control Nothing(inout headers_t hdr, inout metadata_t md) { apply {} }

control PatchIngress(inout headers_t hdr, inout metadata_t md, inout standard_metadata_t std) {
    apply {
        std.egress_spec = ((std.ingress_port - 1) ^ 1) + 1;
    }
}

control PatchEgress(inout headers_t hdr, inout metadata_t md, inout standard_metadata_t std) { apply {} }

control PatchDeparser(packet_out packet, in headers_t hdr) { apply {} }

V1Switch(PatchParser(), Nothing(), PatchIngress(), PatchEgress(), Nothing(), PatchDeparser()) main;
