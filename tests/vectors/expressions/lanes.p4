// SPDX-License-Identifier: Apache-2.0
// Sixteen lanes with all their operations, in the forms that P4 programs use.
#include <core.p4>
#include <v1model.p4>

#define EACH(DO) DO(0) DO(1) DO(2) DO(3) DO(4) DO(5) DO(6) DO(7) DO(8) DO(9) DO(10) DO(11) DO(12) DO(13) DO(14) DO(15)

header request_t { bit<8> op; bit<16> slot; }
#define LANE_FIELD(n) bit<32> v##n;
header lanes_t { EACH(LANE_FIELD) }
struct headers_t { request_t q; lanes_t l; }
struct metadata_t { }

parser P(packet_in p, out headers_t h, inout metadata_t m, inout standard_metadata_t s) {
    state start { p.extract(h.q); p.extract(h.l); transition accept; }
}
control V(inout headers_t h, inout metadata_t m) { apply { } }
control I(inout headers_t h, inout metadata_t m, inout standard_metadata_t s) {
#define REGISTER(n) register<bit<32>>(64) r##n;
    EACH(REGISTER)
#define AT (bit<32>)h.q.slot

#define PUT(n) r##n.write(AT, h.l.v##n);
    action put() { EACH(PUT) }

#define ADD(n) r##n.read(held, AT); h.l.v##n = h.l.v##n + held; r##n.write(AT, h.l.v##n);
    action add() { bit<32> held; EACH(ADD) }

#define GREATEST(n) r##n.read(held, AT); held = (int<32>)held < (int<32>)h.l.v##n ? h.l.v##n : held; \
    r##n.write(AT, held); h.l.v##n = held;
    action greatest() { bit<32> held; EACH(GREATEST) }

#define GREATEST_IF(n) r##n.read(held, AT); if ((int<32>)held > (int<32>)h.l.v##n) { h.l.v##n = held; } \
    else { r##n.write(AT, h.l.v##n); }
    action greatest_if() { bit<32> held; EACH(GREATEST_IF) }

#define LEAST(n) r##n.read(held, AT); if (h.l.v##n >= held) { h.l.v##n = held; } r##n.write(AT, h.l.v##n);
    action least() { bit<32> held; EACH(LEAST) }

#define SATURATE(n) r##n.read(held, AT); h.l.v##n = (bit<32>)((int<32>)h.l.v##n |+| (int<32>)held); \
    r##n.write(AT, h.l.v##n);
    action saturate() { bit<32> held; EACH(SATURATE) }

#define MIX(n) r##n.read(held, AT); held = (held ^ (h.l.v##n << 3)) & ~(h.l.v##n >> 5); \
    r##n.write(AT, held); h.l.v##n = held;
    action mix() { bit<32> held; EACH(MIX) }

#define GET(n) r##n.read(h.l.v##n, AT);
    action get() { EACH(GET) }

    table choose {
        key = { h.q.op: exact; }
        actions = { put; add; greatest; greatest_if; least; saturate; mix; get; @defaultonly NoAction; }
        const entries = {
            0: put(); 1: add(); 2: greatest(); 3: greatest_if(); 4: least(); 5: saturate(); 6: mix(); 7: get();
        }
        const default_action = NoAction();
    }
    apply { choose.apply(); s.egress_spec = 1; }
}
control E(inout headers_t h, inout metadata_t m, inout standard_metadata_t s) { apply { } }
control C(inout headers_t h, inout metadata_t m) { apply { } }
control D(packet_out p, in headers_t h) { apply { p.emit(h); } }
V1Switch(P(), V(), I(), E(), C(), D()) main;
