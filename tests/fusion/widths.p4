// SPDX-License-Identifier: Apache-2.0
// Eight lanes of W bits with all their operations. Compiled for each width by p4c-bm2-ss -DW=16 -o widths16.json.
#include <core.p4>
#include <v1model.p4>

#define EACH(DO) DO(0) DO(1) DO(2) DO(3) DO(4) DO(5) DO(6) DO(7)
#define B bit<W>
#define S int<W>
#define MORE bit<(W + 1)>

header request_t { bit<8> op; bit<16> slot; }
#define LANE_FIELD(n) B v##n;
header lanes_t { EACH(LANE_FIELD) }
#define SIGNED_FIELD(n) S i##n;
header signed_t { EACH(SIGNED_FIELD) }
struct headers_t { request_t q; lanes_t l; signed_t i; }
#define KEPT(n) S k##n;
struct metadata_t { EACH(KEPT) }

parser P(packet_in p, out headers_t h, inout metadata_t m, inout standard_metadata_t s) {
    state start { p.extract(h.q); p.extract(h.l); p.extract(h.i); transition accept; }
}
control V(inout headers_t h, inout metadata_t m) { apply { } }
control I(inout headers_t h, inout metadata_t m, inout standard_metadata_t s) {
#define REGISTER(n) register<B>(64) r##n;
    EACH(REGISTER)
#define AT (bit<32>)h.q.slot
#define ACTION(name, LANE) action name() { B held; EACH(LANE) }
#define COMBINED(n, value) r##n.read(held, AT); h.l.v##n = value; r##n.write(AT, h.l.v##n);

#define PUT(n) held = h.l.v##n; r##n.write(AT, held);
    ACTION(put, PUT)
#define ADD(n) COMBINED(n, h.l.v##n + held)
    ACTION(add, ADD)
#define SUBTRACT(n) COMBINED(n, h.l.v##n - held)
    ACTION(subtract, SUBTRACT)
#define MULTIPLY(n) COMBINED(n, h.l.v##n * held)
    ACTION(multiply, MULTIPLY)
#define ADD_US(n) COMBINED(n, h.l.v##n |+| held)
    ACTION(add_us, ADD_US)
#define SUB_US(n) COMBINED(n, h.l.v##n |-| held)
    ACTION(sub_us, SUB_US)
#define ADD_SS(n) COMBINED(n, (B)((S)h.l.v##n |+| (S)held))
    ACTION(add_ss, ADD_SS)
#define SUB_SS(n) COMBINED(n, (B)((S)h.l.v##n |-| (S)held))
    ACTION(sub_ss, SUB_SS)
#define GREATEST(n) COMBINED(n, (S)held < (S)h.l.v##n ? h.l.v##n : held)
    ACTION(greatest, GREATEST)
#define LEAST(n) COMBINED(n, h.l.v##n >= held ? held : h.l.v##n)
    ACTION(least, LEAST)
#define MIX(n) COMBINED(n, (held ^ (h.l.v##n << 3)) & ~(h.l.v##n >> 2))
    ACTION(mix, MIX)
#define HALVE(n) COMBINED(n, (B)((S)h.l.v##n >> 1) | (held & 1))
    ACTION(halve, HALVE)
#define MEAN(n) COMBINED(n, (B)(((MORE)h.l.v##n + (MORE)held) >> 1))
    ACTION(mean, MEAN)
#define KEEP(n) r##n.read(held, AT); m.k##n = (S)h.l.v##n - (S)held;
    ACTION(keep, KEEP)
#define SIGNED(n) h.i.i##n = h.i.i##n |+| (S)h.l.v##n;
    action signed() { EACH(SIGNED) }
#define SHOW(n) h.i.i##n = m.k##n >> 1; h.l.v##n = m.k##n < h.i.i##n ? (B)1 : 0;
    action show() { EACH(SHOW) }

    table choose {
        key = { h.q.op: exact; }
        actions = {
            put; add; subtract; multiply; add_us; sub_us; add_ss; sub_ss; greatest; least; mix; halve; mean; keep;
            signed; @defaultonly NoAction;
        }
        const entries = {
            0: put(); 1: add(); 2: subtract(); 3: multiply(); 4: add_us(); 5: sub_us(); 6: add_ss(); 7: sub_ss();
            8: greatest(); 9: least(); 10: mix(); 11: halve(); 12: mean(); 13: keep(); 14: signed();
        }
        const default_action = NoAction();
    }
    apply {
        choose.apply();
        if (h.q.op == 13) { show(); }
        s.egress_spec = 1;
    }
}
control E(inout headers_t h, inout metadata_t m, inout standard_metadata_t s) { apply { } }
control C(inout headers_t h, inout metadata_t m) { apply { } }
control D(packet_out p, in headers_t h) { apply { p.emit(h); } }
V1Switch(P(), V(), I(), E(), C(), D()) main;
