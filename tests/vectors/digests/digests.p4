// SPDX-License-Identifier: Apache-2.0
// Digests of two lists of header and metadata fields. The last digest call of a packet counts. Only ingress sends.
#include <core.p4>
#include <v1model.p4>

header in_t { bit<48> mac; bit<9> odd; bit<7> kind; bit<128> wide; bit<16> number; }
struct headers_t { in_t i; }
struct metadata_t { bit<9> port; bit<3> small; }
struct learn_t { bit<48> mac; bit<9> port; bit<9> odd; bit<16> number; }
struct other_t { bit<128> wide; bit<3> small; bit<16> number; bit<48> mac; }

parser P(packet_in p, out headers_t h, inout metadata_t m, inout standard_metadata_t s) {
    state start { p.extract(h.i); transition accept; }
}
control V(inout headers_t h, inout metadata_t m) { apply { } }
control I(inout headers_t h, inout metadata_t m, inout standard_metadata_t s) {
    apply {
        s.egress_spec = 2;
        m.port = s.ingress_port;
        m.small = h.i.kind[4:2];
        if (h.i.kind[0:0] == 1) { digest<learn_t>(1, { h.i.mac, m.port, h.i.odd, h.i.number }); }
        if (h.i.kind[1:1] == 1) { digest<other_t>(1, { h.i.wide, m.small, h.i.number, h.i.mac }); }
        if (h.i.kind[6:6] == 1) { mark_to_drop(s); }
        h.i.mac = 0xffff;
        m.port = 7;
    }
}
control E(inout headers_t h, inout metadata_t m, inout standard_metadata_t s) { apply { } }
control C(inout headers_t h, inout metadata_t m) { apply { } }
control D(packet_out p, in headers_t h) { apply { p.emit(h); } }
V1Switch(P(), V(), I(), E(), C(), D()) main;
