// SPDX-License-Identifier: Apache-2.0
// Header unions with at most one valid header: extraction, assignment, copy, comparison, and stacks of unions.
#include <core.p4>
#include <v1model.p4>

header op_t { bit<8> what; bit<8> kinds; }
header byte_t { bit<8> b; }
header word_t { bit<16> w; }
header long_t { bit<32> l; }
header_union any_t { byte_t b; word_t w; long_t l; }
header result_t { bit<8> valid; bit<8> which; bit<8> equal; bit<8> error_code; bit<16> packet_bytes; }
struct headers_t { op_t op; result_t result; any_t first; any_t second; any_t[3] more; }
struct metadata_t { bit<8> seen; }

parser P(packet_in p, out headers_t h, inout metadata_t m, inout standard_metadata_t s) {
    state start {
        p.extract(h.op);
        transition select(h.op.kinds[1:0]) { 0: first_byte; 1: first_word; 2: first_long; 3: second; }
    }
    state first_byte { p.extract(h.first.b); m.seen = h.first.b.b; transition second; }
    state first_word { p.extract(h.first.w); transition second; }
    state first_long { p.extract(h.first.w); p.extract(h.first.l); transition second; }
    state second {
        transition select(h.op.kinds[3:2]) { 0: second_byte; 1: second_word; 2: second_long; 3: more; }
    }
    state second_byte { p.extract(h.second.b); transition more; }
    state second_word { p.extract(h.second.w); transition more; }
    state second_long { p.extract(h.second.l); transition more; }
    state more {
        transition select(p.lookahead<bit<8>>()) {
            0 &&& 0xc0: more_byte;
            0x40 &&& 0xc0: more_word;
            0x80 &&& 0xc0: more_long;
            default: accept;
        }
    }
    state more_byte { p.extract(h.more.next.b); transition more; }
    state more_word { p.extract(h.more.next.w); transition more; }
    state more_long { p.extract(h.more.next.l); transition more; }
}
control V(inout headers_t h, inout metadata_t m) { apply { } }
control I(inout headers_t h, inout metadata_t m, inout standard_metadata_t s) {
    apply {
        s.egress_spec = 4;
        h.result.setValid();
        h.result.error_code = (bit<8>)(bit<1>)(s.parser_error != error.NoError);
        if (s.parser_error == error.StackOutOfBounds) { h.result.error_code = 2; }
        if (h.op.what == 1) { h.first.l.setValid(); h.first.l.l = 0x01020304; }
        else if (h.op.what == 2) { h.first.b.setValid(); h.first.b.b = 0xaa; }
        else if (h.op.what == 3) { h.first.w.setInvalid(); }
        else if (h.op.what == 4) { h.first = h.second; }
        else if (h.op.what == 5) { h.first.w = h.second.w; }
        else if (h.op.what == 6) { h.second.b.setInvalid(); h.second = h.first; }
        else if (h.op.what == 7) { h.more[0] = h.first; h.more[2] = h.second; }
        else if (h.op.what == 8) { h.more[1].w.setValid(); h.more[1].w.w = 0x4142; }
        else if (h.op.what == 9) { h.more[0].b = h.first.b; }
        if (h.first.isValid()) { h.result.valid = h.result.valid | 1; }
        if (h.second.isValid()) { h.result.valid = h.result.valid | 2; }
        if (h.more[0].b.isValid() || h.more[0].l.isValid()) { h.result.valid = h.result.valid | 4; }
        if (h.more[1].b.isValid() || h.more[1].l.isValid()) { h.result.valid = h.result.valid | 8; }
        if (h.more[2].b.isValid() || h.more[2].l.isValid()) { h.result.valid = h.result.valid | 16; }
        if (h.first.b.isValid()) { h.result.which = h.result.which | 1; }
        if (h.first.w.isValid()) { h.result.which = h.result.which | 2; }
        if (h.first.l.isValid()) { h.result.which = h.result.which | 4; }
        if (h.more[1].w.isValid()) { h.result.which = h.result.which | 8; }
        if (h.first == h.second) { h.result.equal = h.result.equal | 1; }
        if (h.first.w == h.second.w) { h.result.equal = h.result.equal | 2; }
        if (h.first.b != h.more[0].b) { h.result.equal = h.result.equal | 4; }
    }
}
control E(inout headers_t h, inout metadata_t m, inout standard_metadata_t s) {
    apply { h.result.packet_bytes = (bit<16>)s.packet_length; }
}
control C(inout headers_t h, inout metadata_t m) { apply { } }
control D(packet_out p, in headers_t h) {
    apply { p.emit(h.result); p.emit(h.op); p.emit(h.first); p.emit(h.second); p.emit(h.more); }
}
V1Switch(P(), V(), I(), E(), C(), D()) main;
