// SPDX-License-Identifier: Apache-2.0
// Parsing: stacks, lookahead, masks, verify, advance, errors. Also header operations after the parser.
#include <core.p4>
#include <v1model.p4>

error { BadMagic }

header top_t { bit<8> kind; bit<8> magic; bit<16> error_code; bit<8> last; bit<8> valid; bit<16> length; }
header label_t { bit<20> value; bit<3> tc; bit<1> bottom; bit<8> ttl; }
header option_t { bit<4> type; bit<12> value; }
header tail_t { bit<96> wide; bit<32> end; }
struct headers_t { top_t top; label_t[4] labels; option_t option; option_t other; tail_t tail; }
struct metadata_t { bit<4> peek; bit<20> first; }

parser P(packet_in p, out headers_t h, inout metadata_t m, inout standard_metadata_t s) {
    state start {
        p.extract(h.top);
        verify(h.top.magic[7:4] == 0xA || h.top.magic == 0, error.BadMagic);
        transition select(h.top.kind, h.top.magic) {
            (1, _): labels;
            (2, 0xA0 &&& 0xF0): option;
            (3, _): skip;
            (0x10 .. 0x13, _): tail;
            (0x80 &&& 0x80, 0xAA): labels;
            (5, _): accept;
            default: accept;
        }
    }
    state labels {
        p.extract(h.labels.next);
        m.first = h.labels[0].value;
        transition select(h.labels.last.bottom) { 0: labels; default: option_maybe; }
    }
    state option_maybe {
        m.peek = p.lookahead<bit<4>>();
        transition select(m.peek) { 7: option; 6: other; default: accept; }
    }
    state option { p.extract(h.option); transition accept; }
    state other { p.extract(h.other); transition tail; }
    state skip { p.advance((bit<32>)h.top.last * 8); transition tail; }
    state tail {
        p.extract(h.tail);
        transition select(h.tail.wide) { 96w0x0102030405060708090a0b0c: option; default: accept; }
    }
}
control V(inout headers_t h, inout metadata_t m) { apply { } }
control I(inout headers_t h, inout metadata_t m, inout standard_metadata_t s) {
    apply {
        s.egress_spec = 1;
        if (s.parser_error == error.BadMagic) { h.top.error_code = 0x0100; }
        else if (s.parser_error == error.PacketTooShort) { h.top.error_code = 0x0200; }
        else if (s.parser_error == error.StackOutOfBounds) { h.top.error_code = 0x0300; }
        else if (s.parser_error != error.NoError) { h.top.error_code = 0xffff; }
        if (!h.top.isValid()) { mark_to_drop(s); exit; }
        if (h.labels[0].isValid()) { h.top.valid[0:0] = 1; }
        if (h.labels[1].isValid()) { h.top.valid[1:1] = 1; }
        if (h.option.isValid()) { h.top.valid[2:2] = 1; }
        if (h.other.isValid()) { h.top.valid[3:3] = 1; }
        if (h.tail.isValid()) { h.top.valid[4:4] = 1; }
        if (h.top.kind == 1) {
            h.labels.push_front(1);
            h.labels[0].setValid();
            h.labels[0].value = m.first + 1;
            h.labels[0].ttl = 64;
        } else if (h.top.kind == 0x81) {
            h.labels.pop_front(2);
        } else if (h.top.kind == 2) {
            h.other = h.option;
            h.other.value = h.other.value + 1;
            if (h.other == h.option) { h.top.last = 0xEE; }
        } else if (h.top.kind == 3) {
            h.tail.setInvalid();
        } else if (h.top.kind == 0x11) {
            h.option.setValid();
        } else if (h.top.kind == 0x82) {
            h.labels[1] = h.labels[0];
            h.labels[1].value = h.labels[1].value ^ 0xfffff;
        }
    }
}
control E(inout headers_t h, inout metadata_t m, inout standard_metadata_t s) {
    apply { h.top.length = s.packet_length[15:0]; }
}
control C(inout headers_t h, inout metadata_t m) { apply { } }
control D(packet_out p, in headers_t h) {
    apply { p.emit(h.top); p.emit(h.labels); p.emit(h.option); p.emit(h.tail); p.emit(h.other); }
}
V1Switch(P(), V(), I(), E(), C(), D()) main;
