// SPDX-License-Identifier: Apache-2.0
// Entries that are added and deleted at run time: priorities and ties, prefixes within bytes, ranges beside
// ternary and lpm fields, fields of headers that are invalid or no longer valid, validity, direct counters.
#include <core.p4>
#include <v1model.p4>

header key_t { bit<16> pattern; bit<16> prefix; bit<4> nibble; bit<4> pad; bit<32> route; bit<24> range1; bit<8> exact1; bit<72> wide; }
header more_t { bit<8> kind; bit<16> value; }
header out_t { bit<8> t; bit<8> l; bit<8> r; bit<8> m; bit<8> v; bit<8> g; bit<8> o; bit<8> w; bit<8> x; }
struct headers_t { key_t k; more_t m; out_t o; }
struct metadata_t { }

parser P(packet_in p, out headers_t h, inout metadata_t m, inout standard_metadata_t s) {
    state start {
        p.extract(h.k);
        transition select(h.k.pad) { 0 &&& 1: more; default: rest; }
    }
    state more { p.extract(h.m); transition rest; }
    state rest { p.extract(h.o); transition accept; }
}
control V(inout headers_t h, inout metadata_t m) { apply { } }
control I(inout headers_t h, inout metadata_t m, inout standard_metadata_t s) {
    direct_counter(CounterType.packets_and_bytes) hits;
    action t(bit<8> x) { h.o.t = x; hits.count(); }
    action l(bit<8> x) { h.o.l = x; }
    action r(bit<8> x) { h.o.r = x; }
    action m2(bit<8> x) { h.o.m = x; }
    action v(bit<8> x) { h.o.v = x; }
    action g(bit<8> x) { h.o.g = x; }
    action o(bit<8> x) { h.o.o = x; }
    action w(bit<8> x) { h.o.w = x; }
    table patterns {
        key = { h.k.pattern: ternary; h.k.nibble: ternary; }
        actions = { t; @defaultonly NoAction; }
        counters = hits;
        size = 64;
    }
    table prefixes {
        key = { h.k.exact1: exact; h.k.prefix: lpm; }
        actions = { l; NoAction; }
    }
    table routes {
        key = { h.k.route: lpm; }
        actions = { g; NoAction; }
        default_action = g(255);
    }
    table ranges {
        key = { h.k.range1: range; h.k.pattern: ternary; h.k.route: lpm; h.k.exact1: exact; }
        actions = { r; NoAction; }
    }
    table more {
        key = { h.m.value: exact; h.m.isValid(): exact @name("valid"); }
        actions = { m2; NoAction; }
    }
    table gone {
        key = { h.m.value: ternary; h.m.kind: exact; h.m.isValid(): ternary @name("valid"); }
        actions = { v; NoAction; }
    }
    table maybe {
        key = { h.k.exact1: optional; h.k.nibble: optional; }
        actions = { o; NoAction; }
    }
    table wide {
        key = { h.k.wide: ternary; h.k.exact1: exact; }
        actions = { w; NoAction; }
    }
    apply {
        s.egress_spec = 1;
        if (!h.o.isValid()) { mark_to_drop(s); return; }
        patterns.apply();
        prefixes.apply();
        routes.apply();
        if (ranges.apply().miss) { h.o.x = 1; }
        more.apply();
        if (h.k.pad[1:1] == 1) { h.m.setInvalid(); }
        gone.apply();
        maybe.apply();
        wide.apply();
    }
}
control E(inout headers_t h, inout metadata_t m, inout standard_metadata_t s) { apply { } }
control C(inout headers_t h, inout metadata_t m) { apply { } }
control D(packet_out p, in headers_t h) { apply { p.emit(h); } }
V1Switch(P(), V(), I(), E(), C(), D()) main;
