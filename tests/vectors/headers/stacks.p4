// SPDX-License-Identifier: Apache-2.0
// Header stacks: next, last, lastIndex, elements at an index that the packet brings, push, pop, assignment.
#include <core.p4>
#include <v1model.p4>

header op_t { bit<8> what; bit<8> i; bit<8> j; bit<8> value; }
header label_t { bit<15> tag; bit<1> bottom; }
header pair_t { bit<12> x; bit<12> y; }
header result_t { bit<32> last_index; bit<16> last; bit<8> valid; bit<8> error_code; bit<16> read; }
struct headers_t { op_t op; result_t result; label_t[4] labels; label_t[4] spare; pair_t[2] pairs; }
struct metadata_t { bit<32> index; bit<16> seen; label_t[2] local; }

parser P(packet_in p, out headers_t h, inout metadata_t m, inout standard_metadata_t s) {
    state start { p.extract(h.op); transition select(h.op.what) { 0xff: pairs; default: labels; } }
    state labels {
        p.extract(h.labels.next);
        m.index = h.labels.lastIndex;
        m.seen = (bit<16>)h.labels.last.tag;
        transition select(h.labels.last.bottom) { 0: labels; 1: pairs; }
    }
    state pairs {
        p.extract(h.pairs.next);
        p.extract(h.pairs.next);
        transition accept;
    }
}
control V(inout headers_t h, inout metadata_t m) { apply { } }
control I(inout headers_t h, inout metadata_t m, inout standard_metadata_t s) {
    apply {
        s.egress_spec = 3;
        h.result.setValid();
        h.result.last_index = m.index;
        h.result.last = m.seen;
        h.result.error_code = (bit<8>)(bit<1>)(s.parser_error != error.NoError);
        if (s.parser_error == error.StackOutOfBounds) { h.result.error_code = 2; }
        if (h.labels[3].isValid() && h.pairs[1].isValid() && h.op.i < 4 && h.op.j < 4) {
            bit<16> wanted = (bit<16>)h.labels[h.op.i].tag;
            h.result.read = wanted;
            if (h.op.what == 1) { h.labels[h.op.j].tag = h.labels[h.op.i].tag + (bit<15>)h.op.value; }
            else if (h.op.what == 2) { h.labels[2] = h.labels[h.op.i]; }
            else if (h.op.what == 3) { h.labels[h.op.i].setInvalid(); }
            else if (h.op.what == 4) { h.labels[1].setInvalid(); h.labels[h.op.i].setValid(); }
            else if (h.op.what == 5 && h.op.value < 2) { h.pairs[h.op.value].x = h.pairs[1 - h.op.value].y; }
            else if (h.op.what == 6 && h.labels[0].tag < 4) {
                h.labels[h.labels[0].tag].tag = h.labels[h.op.j].tag ^ 0x7fff;
            }
        }
        if (h.op.what == 10) { h.labels.push_front(1); }
        else if (h.op.what == 11) { h.labels.push_front(2); h.labels[0].setValid(); h.labels[0].tag = 7; }
        else if (h.op.what == 12) { h.labels.pop_front(1); }
        else if (h.op.what == 13) { h.labels.pop_front(3); }
        else if (h.op.what == 14) { h.labels.push_front(4); }
        else if (h.op.what == 15) { h.spare = h.labels; h.labels.pop_front(2); }
        else if (h.op.what == 16) { h.spare = h.labels; h.spare[2] = h.labels[0]; h.spare.push_front(1); }
        else if (h.op.what == 17) { h.labels[2].setInvalid(); h.labels.push_front(1); }
        else if (h.op.what == 18) { m.local[0] = h.labels[0]; m.local[1] = h.labels[1]; h.labels[1] = m.local[0]; h.labels[0] = m.local[1]; }
        if (h.labels[0].isValid()) { h.result.valid = h.result.valid | 1; }
        if (h.labels[1].isValid()) { h.result.valid = h.result.valid | 2; }
        if (h.labels[2].isValid()) { h.result.valid = h.result.valid | 4; }
        if (h.labels[3].isValid()) { h.result.valid = h.result.valid | 8; }
        if (h.labels[0].isValid() && h.labels[0] == h.labels[1]) { h.result.valid = h.result.valid | 16; }
    }
}
control E(inout headers_t h, inout metadata_t m, inout standard_metadata_t s) { apply { } }
control C(inout headers_t h, inout metadata_t m) { apply { } }
control D(packet_out p, in headers_t h) {
    apply { p.emit(h.result); p.emit(h.op); p.emit(h.labels); p.emit(h.spare); p.emit(h.pairs); }
}
V1Switch(P(), V(), I(), E(), C(), D()) main;
