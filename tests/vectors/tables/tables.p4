// SPDX-License-Identifier: Apache-2.0
// Every match kind with constant entries, priorities, hit and miss, switch on the action, exit.
#include <core.p4>
#include <v1model.p4>

header key_t { bit<8> exact1; bit<16> exact2; bit<32> prefix; bit<16> pattern; bit<16> number; bit<8> maybe; bit<96> wide; }
header out_t { bit<8> e; bit<8> l; bit<8> t; bit<8> r; bit<8> o; bit<8> w; bit<8> path; bit<8> v; }
struct headers_t { key_t k; out_t o; }
struct metadata_t { }

parser P(packet_in p, out headers_t h, inout metadata_t m, inout standard_metadata_t s) {
    state start { p.extract(h.k); p.extract(h.o); transition accept; }
}
control V(inout headers_t h, inout metadata_t m) { apply { } }
control I(inout headers_t h, inout metadata_t m, inout standard_metadata_t s) {
    action e(bit<8> x) { h.o.e = x; }
    action l(bit<8> x) { h.o.l = x; }
    action t(bit<8> x) { h.o.t = x; }
    action r(bit<8> x) { h.o.r = x; }
    action o(bit<8> x) { h.o.o = x; }
    action w(bit<8> x) { h.o.w = x; }
    action stop() { h.o.path = 0xff; exit; }
    action drop() { mark_to_drop(s); }
    table exacts {
        key = { h.k.exact1: exact; h.k.exact2: exact; }
        actions = { e; drop; NoAction; }
        const entries = { (1, 1): e(11); (1, 2): e(12); (2, 0xffff): e(2); (3, 3): drop(); }
        default_action = e(99);
    }
    table prefixes {
        key = { h.k.prefix: lpm; h.k.exact1: exact; }
        actions = { l; NoAction; }
        const entries = {
            (0x0a000000 &&& 0xff000000, 1): l(8);
            (0x0a0b0000 &&& 0xffff0000, 1): l(16);
            (0x0a0b0c0d, 1): l(32);
            (0x0a0b0c0d, 2): l(33);
            (_, 1): l(0);
        }
        default_action = NoAction();
    }
    table patterns {
        key = { h.k.pattern: ternary; h.k.exact1: exact; }
        actions = { t; stop; NoAction; }
        const entries = {
            (0xffff, 2): stop();
            (0x0034 &&& 0x00ff, 1): t(2);
            (0x1200 &&& 0xff00, 1): t(1);
            (_, 1): t(3);
        }
    }
    table ranges {
        key = { h.k.number: range; }
        actions = { r; NoAction; }
        const entries = { 0 .. 9: r(1); 10 .. 99: r(2); 50 .. 1000: r(3); 0xfff0 .. 0xffff: r(4); }
    }
    table optionals {
        key = { h.k.maybe: optional; h.k.exact1: exact; }
        actions = { o; NoAction; }
        const entries = { (7, 1): o(7); (_, 1): o(1); (8, 2): o(8); }
    }
    table wides {
        key = { h.k.wide: exact; h.o.isValid(): exact; }
        actions = { w; NoAction; }
        const entries = { (96w0x0102030405060708090a0b0c, true): w(5); (96w0, false): w(6); }
        const default_action = w(9);
    }
    apply {
        s.egress_spec = 1;
        if (exacts.apply().hit) { h.o.path[0:0] = 1; }
        switch (prefixes.apply().action_run) {
            l: { h.o.path[1:1] = 1; }
            default: { h.o.path[2:2] = 1; }
        }
        patterns.apply();
        if (!ranges.apply().hit) { h.o.path[3:3] = 1; }
        optionals.apply();
        wides.apply();
    }
}
control E(inout headers_t h, inout metadata_t m, inout standard_metadata_t s) {
    apply { if (h.k.exact1 == 9) { mark_to_drop(s); } h.o.v = 0x5a; }
}
control C(inout headers_t h, inout metadata_t m) { apply { } }
control D(packet_out p, in headers_t h) { apply { p.emit(h); } }
V1Switch(P(), V(), I(), E(), C(), D()) main;
