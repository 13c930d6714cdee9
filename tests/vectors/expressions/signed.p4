// SPDX-License-Identifier: Apache-2.0
// Signed numbers, casts between widths, saturation at its edges, and fields of bool, enum and error types.
#include <core.p4>
#include <v1model.p4>

enum bit<4> Colour { RED = 3, GREEN = 9, BLUE = 12 }
enum Shape { ROUND, SQUARE, FLAT }

header operands_t {
    int<8> a8; int<8> b8; int<16> a16; int<32> a32; int<32> b32; int<64> a64; int<64> b64;
    Colour colour; bool yes; int<3> a3; bit<8> shift; bit<8> u8;
}
header results_t {
    int<8> r0; int<8> r1; int<8> r2; int<8> r3; int<8> r4; int<8> r5; int<8> r6; int<8> r7;
    int<16> s0; int<16> s1; int<16> s2; bit<16> s3; int<16> s4; bit<16> s5;
    int<32> t0; int<32> t1; int<32> t2; int<32> t3; int<32> t4; bit<32> t5;
    int<64> u0; int<64> u1; int<64> u2; int<64> u3; int<64> u4; bit<64> u5;
    Colour colour; bool yes; int<3> a3; bit<8> flags; bit<8> shape;
}
struct headers_t { operands_t o; results_t r; }
struct metadata_t { Shape shape; error problem; int<12> x; int<7> y; bool flag; Colour colour; }

parser P(packet_in p, out headers_t h, inout metadata_t m, inout standard_metadata_t s) {
    state start {
        p.extract(h.o);
        m.problem = error.StackOutOfBounds;
        transition select(h.o.colour, h.o.yes) {
            (Colour.RED, true): red;
            (Colour.GREEN, _): green;
            default: accept;
        }
    }
    state red { m.problem = error.NoMatch; m.colour = Colour.BLUE; transition accept; }
    state green { m.problem = error.NoError; m.flag = true; transition accept; }
}
control V(inout headers_t h, inout metadata_t m) { apply { } }
control I(inout headers_t h, inout metadata_t m, inout standard_metadata_t s) {
    action eight() {
        h.r.r0 = h.o.a8 + h.o.b8;
        h.r.r1 = h.o.a8 - h.o.b8;
        h.r.r2 = h.o.a8 * h.o.b8;
        h.r.r3 = h.o.a8 |+| h.o.b8;
        h.r.r4 = h.o.a8 |-| h.o.b8;
        h.r.r5 = h.o.a8 >> h.o.shift;
        h.r.r6 = h.o.a8 << h.o.shift;
        h.r.r7 = -h.o.a8;
    }
    action casts() {
        m.x = (int<12>)h.o.a8 + (int<12>)h.o.b8;
        m.y = (int<7>)h.o.a8;
        h.r.s0 = (int<16>)m.x;
        h.r.s1 = (int<16>)m.y - 1;
        h.r.s2 = (int<16>)h.o.a3 * 5;
        h.r.s3 = (bit<16>)(bit<8>)h.o.a8;
        h.r.s4 = (int<16>)(bit<16>)h.o.u8 - (int<16>)h.o.a8;
        h.r.s5 = (bit<16>)(h.o.a16 & 0x7ff0) | (bit<16>)(int<16>)h.o.a8;
    }
    action wider() {
        h.r.t0 = h.o.a32 |+| h.o.b32;
        h.r.t1 = h.o.a32 |-| h.o.b32;
        h.r.t2 = h.o.a32 * h.o.b32;
        h.r.t3 = h.o.a32 >> h.o.shift;
        h.r.t4 = h.o.a32 < 0 ? -h.o.a32 : h.o.a32;
        h.r.t5 = (bit<32>)h.o.a32 >> h.o.shift;
        h.r.u0 = h.o.a64 |+| h.o.b64;
        h.r.u1 = h.o.a64 |-| h.o.b64;
        h.r.u2 = h.o.a64 * h.o.b64;
        h.r.u3 = h.o.a64 >> h.o.shift;
        h.r.u4 = ~h.o.a64 ^ h.o.b64;
        h.r.u5 = (bit<64>)h.o.a64 + (bit<64>)(int<64>)h.o.a8;
    }
    action kinds() {
        h.r.a3 = h.o.a3 + 1;
        h.r.yes = !h.o.yes || m.flag;
        h.r.colour = h.o.yes ? m.colour : h.o.colour;
    }
    apply {
        h.r.setValid();
        eight();
        casts();
        wider();
        kinds();
        if (h.o.colour == Colour.RED) { m.shape = Shape.SQUARE; }
        else if (h.o.a3 < -2) { m.shape = Shape.FLAT; }
        if (m.shape == Shape.ROUND) { h.r.shape = 1; }
        else if (m.shape == Shape.SQUARE) { h.r.shape = 2; }
        else { h.r.shape = 3; }
        if (m.problem == error.NoMatch) { h.r.flags = h.r.flags | 1; }
        if (m.problem == error.NoError) { h.r.flags = h.r.flags | 2; }
        if (h.o.a8 > h.o.b8) { h.r.flags = h.r.flags | 4; }
        if (h.o.a64 <= h.o.b64) { h.r.flags = h.r.flags | 8; }
        if ((int<16>)h.o.a8 == h.o.a16) { h.r.flags = h.r.flags | 16; }
        if (m.x >= 0 && h.o.yes) { h.r.flags = h.r.flags | 32; }
        if ((h.o.a8 < 0) != (h.o.b8 < 0)) { h.r.flags = h.r.flags | 64; }
        s.egress_spec = 7;
    }
}
control E(inout headers_t h, inout metadata_t m, inout standard_metadata_t s) { apply { } }
control C(inout headers_t h, inout metadata_t m) { apply { } }
control D(packet_out p, in headers_t h) { apply { p.emit(h); } }
V1Switch(P(), V(), I(), E(), C(), D()) main;
