// SPDX-License-Identifier: Apache-2.0
// Lookahead of many widths, advance by constants and fields, select on several keys with masks and ranges,
// verify with the program's own errors, loops, assignments in the parser.
#include <core.p4>
#include <v1model.p4>

error { Forbidden, TooDeep }

header start_t { bit<8> what; bit<4> a; bit<12> b; bit<32> skip; }
header tlv_t { bit<8> type; bit<8> length; }
header result_t {
    bit<32> error_code; bit<100> wide; bit<12> narrow; bit<8> way; bit<8> loops; bit<16> sum; bit<80> pair;
}
struct pair_t { bit<33> x; bit<7> y; }
struct headers_t { start_t start; result_t result; tlv_t tlv; tlv_t last; }
struct metadata_t { bit<8> way; bit<8> loops; bit<16> sum; bit<100> wide; int<12> narrow; bool flag; bit<40> pair; }

parser P(packet_in p, out headers_t h, inout metadata_t m, inout standard_metadata_t s) {
    state start {
        p.extract(h.start);
        m.way = 1;
        transition select(h.start.what, h.start.a, h.start.b) {
            (0x10, _, 0..99): low;
            (0x10, 4w8 &&& 4w8, _): masked;
            (0x10 .. 0x1f, 1, 0x100 &&& 0xf00): both;
            (0x20, _, _): look;
            (0x30, _, _): jump;
            (0x31, _, _): jump_back;
            (0x40, _, _): tlvs;
            (0x50, _, _): check;
            (_, 0xf, _): reject;
            (0xee &&& 0xee, _, 0xfff): accept;
            default: other;
        }
    }
    state low { m.way = 2; transition accept; }
    state masked { m.way = 3; m.sum = (bit<16>)h.start.b + 5; transition accept; }
    state both { m.way = m.way + 3; m.flag = h.start.b == 0x101; transition select(m.flag) { true: low; false: accept; } }
    state look {
        m.wide = p.lookahead<bit<100>>();
        m.narrow = (int<12>)p.lookahead<bit<12>>();
        pair_t both_of = p.lookahead<pair_t>();
        m.pair = both_of.y ++ both_of.x;
        m.way = 5;
        p.advance(8);
        transition select(p.lookahead<bit<3>>(), p.lookahead<bit<17>>()) {
            (1, _): low;
            (_, 0x0f000 &&& 0x0f000): masked;
            default: accept;
        }
    }
    state jump { p.advance(h.start.skip); m.way = 6; p.advance(16); transition tlv; }
    state jump_back { p.advance((bit<32>)h.start.a << 3); m.way = 7; transition accept; }
    state tlv { p.extract(h.last); transition accept; }
    state tlvs {
        p.extract(h.tlv);
        m.loops = m.loops + 1;
        m.sum = m.sum + (bit<16>)h.tlv.length;
        verify(m.loops < 6, error.TooDeep);
        verify(h.tlv.type != 13, error.Forbidden);
        p.advance((bit<32>)h.tlv.length << 3);
        transition select(h.tlv.type) { 0: accept; default: tlvs; }
    }
    state check {
        verify(h.start.a > 3 && h.start.b[0:0] == 1, h.start.a == 2 ? error.Forbidden : error.TooDeep);
        m.way = 8;
        transition accept;
    }
    state other { m.way = 9; transition select(h.start.a) { 0..3: reject; 4: accept; 5 .. 9: masked; } }
}
control V(inout headers_t h, inout metadata_t m) { apply { } }
control I(inout headers_t h, inout metadata_t m, inout standard_metadata_t s) {
    apply {
        s.egress_spec = 5;
        h.result.setValid();
        if (s.parser_error == error.NoError) { h.result.error_code = 0; }
        else if (s.parser_error == error.PacketTooShort) { h.result.error_code = 1; }
        else if (s.parser_error == error.NoMatch) { h.result.error_code = 2; }
        else if (s.parser_error == error.ParserInvalidArgument) { h.result.error_code = 3; }
        else if (s.parser_error == error.Forbidden) { h.result.error_code = 4; }
        else if (s.parser_error == error.TooDeep) { h.result.error_code = 5; }
        else { h.result.error_code = 6; }
        h.result.way = m.way;
        h.result.loops = m.loops;
        h.result.sum = m.sum;
        h.result.wide = m.wide;
        h.result.narrow = (bit<12>)m.narrow;
        h.result.pair = (bit<80>)m.pair;
    }
}
control E(inout headers_t h, inout metadata_t m, inout standard_metadata_t s) { apply { } }
control C(inout headers_t h, inout metadata_t m) { apply { } }
control D(packet_out p, in headers_t h) {
    apply { p.emit(h.result); p.emit(h.start); p.emit(h.tlv); p.emit(h.last); }
}
V1Switch(P(), V(), I(), E(), C(), D()) main;
