// SPDX-License-Identifier: Apache-2.0
// The paths through a control: exit, return, switch on the action that ran and on values, hit and miss, loops,
// actions that call actions, directly called actions with arguments, several tables in a row.
#include <core.p4>
#include <v1model.p4>

header op_t { bit<8> what; bit<8> key; bit<16> value; bit<32> trace; bit<8> count; }
struct headers_t { op_t op; }
struct metadata_t { bit<8> x; bit<72> wide; }

parser P(packet_in p, out headers_t h, inout metadata_t m, inout standard_metadata_t s) {
    state start { p.extract(h.op); transition accept; }
}
control V(inout headers_t h, inout metadata_t m) { apply { } }
control Inner(inout headers_t h, inout metadata_t m, in bit<8> limit) {
    action mark(bit<32> bits) { h.op.trace = h.op.trace | bits; }
    apply {
        mark(0x100);
        if (h.op.count > limit) { mark(0x200); return; }
        h.op.count = h.op.count + 1;
        if (h.op.what == 7) { mark(0x400); exit; }
        mark(0x800);
    }
}
control I(inout headers_t h, inout metadata_t m, inout standard_metadata_t s) {
    Inner() inner;
    action mark(bit<32> bits) { h.op.trace = h.op.trace | bits; }
    action red(bit<16> value) { mark(1); h.op.value = value; }
    action green(bit<72> wide, bit<1> stop) { m.wide = wide; mark(2); if (stop == 1) { exit; } h.op.value = (bit<16>)wide; }
    action blue() { mark(4); }
    action nested(in bit<16> a, out bit<16> b) { b = a ^ 0x5555; if (a > 0x8000) { return; } b = b + 1; }
    action sum_up() {
        bit<16> total = 0;
        for (bit<8> i = 0; i <= h.op.key; i = i + 1) {
            if (i == 5) { continue; }
            if (i > 20) { break; }
            total = total + (bit<16>)i;
        }
        h.op.value = total;
    }
    // A table has only one successor in BMv2, so each place has its table.
#define COLOURS(name) table name { key = { h.op.key: exact; } actions = { red; green; blue; NoAction; } \
        default_action = blue(); size = 16; }
#define AGAIN(name) table name { key = { h.op.what: ternary; } actions = { red; blue; @defaultonly NoAction; } \
        const default_action = NoAction(); \
        const entries = { 0x01 &&& 0x0f: red(0x1111); 0x02 &&& 0x0e: blue(); } }
    COLOURS(first)
    COLOURS(second)
    COLOURS(third)
    COLOURS(fourth)
    AGAIN(after_second)
    AGAIN(after_third)
    AGAIN(after_fourth)
    apply {
        s.egress_spec = 10;
        if (h.op.what == 1) {
            switch (first.apply().action_run) {
                red: { mark(0x10); }
                green: { mark(0x20); }
                default: { mark(0x40); }
            }
        } else if (h.op.what == 2) {
            if (second.apply().hit) { mark(0x1000); after_second.apply(); } else { mark(0x2000); }
        } else if (h.op.what == 3) {
            if (!third.apply().hit) { mark(0x4000); if (after_third.apply().miss) { mark(0x8000); return; } }
        } else if (h.op.what == 4) {
            switch (h.op.key) { 1: 2: { mark(0x10000); } 3: { mark(0x20000); } 200: { exit; } default: { mark(0x40000); } }
        } else if (h.op.what == 5) {
            nested(h.op.value, h.op.value);
            red(h.op.value + 2);
        } else if (h.op.what == 6 || h.op.what == 7) {
            inner.apply(h, m, 3);
        } else if (h.op.what == 8) {
            sum_up();
        } else {
            fourth.apply();
            after_fourth.apply();
        }
        mark(0x80000000);
    }
}
control E(inout headers_t h, inout metadata_t m, inout standard_metadata_t s) {
    apply { if (h.op.what == 9) { exit; } h.op.trace = h.op.trace | 0x40000000; }
}
control C(inout headers_t h, inout metadata_t m) { apply { } }
control D(packet_out p, in headers_t h) { apply { p.emit(h); } }
V1Switch(P(), V(), I(), E(), C(), D()) main;
