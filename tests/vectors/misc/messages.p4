// SPDX-License-Identifier: Apache-2.0
// Constructs that change no packet: messages, assertions that hold, @atomic blocks.
#include <core.p4>
#include <v1model.p4>

header op_t { bit<8> what; int<8> small; bit<80> wide; }
struct headers_t { op_t op; }
struct metadata_t { bit<8> x; }

parser P(packet_in p, out headers_t h, inout metadata_t m, inout standard_metadata_t s) {
    state start { p.extract(h.op); log_msg("parsed {}", {h.op.what}); transition accept; }
}
control V(inout headers_t h, inout metadata_t m) { apply { } }
control I(inout headers_t h, inout metadata_t m, inout standard_metadata_t s) {
    register<bit<8>>(4) last;
    action say() {
        log_msg("small {} of wide {}, sum {}", {h.op.small, h.op.wide, h.op.what + 1});
        h.op.wide = h.op.wide + 1;
    }
    apply {
        s.egress_spec = 9;
        log_msg("a packet");
        if (h.op.what[0:0] == 1) { say(); }
        assert(h.op.what < 100);
        assume(h.op.what != 77 || s.ingress_port != 3);
        @atomic {
            last.read(m.x, 1);
            last.write(1, h.op.what);
            h.op.what = m.x;
        }
    }
}
control E(inout headers_t h, inout metadata_t m, inout standard_metadata_t s) {
    apply { log_msg("at the {} of {}", {s.egress_port, h.op.small < 0}); }
}
control C(inout headers_t h, inout metadata_t m) { apply { } }
control D(packet_out p, in headers_t h) { apply { p.emit(h); } }
V1Switch(P(), V(), I(), E(), C(), D()) main;
