// SPDX-License-Identifier: Apache-2.0
// Action profiles and selectors: members, weighted groups, one-shot sets, two tables that share a selector.
#include <core.p4>
#include <v1model.p4>

header key_t { bit<8> plain; bit<8> chosen; bit<8> shared; bit<8> once; bit<16> flow; bit<7> odd; bit<1> pad; }
header out_t { bit<8> plain; bit<16> chosen; bit<8> shared; bit<8> path; bit<8> once; bit<8> twice; }
struct headers_t { key_t k; out_t o; }
struct metadata_t { bit<16> salt; }

parser P(packet_in p, out headers_t h, inout metadata_t m, inout standard_metadata_t s) {
    state start { p.extract(h.k); p.extract(h.o); m.salt = 0x5a5a; transition accept; }
}
control V(inout headers_t h, inout metadata_t m) { apply { } }
control I(inout headers_t h, inout metadata_t m, inout standard_metadata_t s) {
    action plain(bit<8> x) { h.o.plain = x; }
    action choose(bit<16> x) { h.o.chosen = x; }
    action twice(bit<8> x) { h.o.twice = h.o.twice + x; }
    action drop() { mark_to_drop(s); }
    action once(bit<8> x) { h.o.once = x; }
    action again(bit<8> x, bit<8> y) { h.o.once = x; h.o.twice = h.o.twice + y; }
    action_profile(16) profile;
    @max_group_size(16) action_selector(HashAlgorithm.crc16, 64, 10) selector;
    @max_group_size(16) action_selector(HashAlgorithm.crc32, 64, 32) other;
    table plains {
        key = { h.k.plain: exact; }
        actions = { plain; drop; NoAction; }
        implementation = profile;
        default_action = NoAction();
    }
    table choices {
        key = { h.k.chosen: exact; h.k.flow: selector; h.k.odd: selector; m.salt: selector; }
        actions = { choose; twice; drop; NoAction; }
        implementation = selector;
        default_action = NoAction();
    }
    table shared {
        key = { h.k.shared: ternary; h.k.flow: selector; h.k.odd: selector; m.salt: selector; }
        actions = { choose; twice; drop; NoAction; }
        implementation = selector;
    }
    table sets {
        key = { h.k.once: lpm; h.k.flow: selector; }
        actions = { once; again; drop; NoAction; }
        implementation = other;
    }
    apply {
        s.egress_spec = 1;
        if (!h.o.isValid()) { mark_to_drop(s); return; }
        if (plains.apply().hit) { h.o.path = h.o.path | 1; }
        // BMv2 ends if a table with a shared selector branches by action. These tables branch by hit or miss.
        if (choices.apply().hit) { h.o.path = h.o.path | 2; }
        if (!shared.apply().hit) { h.o.path = h.o.path | 8; }
        switch (sets.apply().action_run) {
            once: { h.o.path = h.o.path | 4; }
            again: { h.o.path = h.o.path | 16; }
            default: { }
        }
    }
}
control E(inout headers_t h, inout metadata_t m, inout standard_metadata_t s) { apply { } }
control C(inout headers_t h, inout metadata_t m) { apply { } }
control D(packet_out p, in headers_t h) { apply { p.emit(h); } }
V1Switch(P(), V(), I(), E(), C(), D()) main;
