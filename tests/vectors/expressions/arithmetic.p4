// SPDX-License-Identifier: Apache-2.0
// Expressions of many widths. A packet brings operands and leaves with results.
#include <core.p4>
#include <v1model.p4>

header operands_t {
    bit<8> a8; bit<8> b8;
    bit<32> a32; bit<32> b32;
    bit<64> a64; bit<64> b64;
    bit<128> a128; bit<128> b128;
    bit<3> a3; bit<13> a13;
    bit<59> a59; bit<5> b5;
}
header results_t {
    bit<8> r0; bit<8> r1; bit<8> r2; bit<8> r3; bit<8> r4; bit<8> r5;
    bit<32> r6; bit<32> r7; bit<32> r8; bit<32> r9; bit<32> r10; bit<32> r11; bit<32> r12; bit<32> r13;
    bit<64> r14; bit<64> r15; bit<64> r16; bit<64> r17; bit<64> r18; bit<64> r19;
    bit<128> r20; bit<128> r21; bit<128> r22; bit<128> r23; bit<128> r24; bit<128> r25; bit<128> r26;
    bit<16> r27; bit<16> r28; bit<64> r29; bit<64> r30;
    bit<1> c0; bit<1> c1; bit<1> c2; bit<1> c3; bit<1> c4; bit<1> c5; bit<1> c6; bit<1> c7;
    bit<1> c8; bit<1> c9; bit<1> c10; bit<1> c11; bit<1> c12; bit<1> c13; bit<1> c14; bit<1> c15;
}
struct headers_t { operands_t o; results_t r; }
struct metadata_t { int<16> signed16; int<128> signed128; bit<200> wide; }

parser P(packet_in p, out headers_t h, inout metadata_t m, inout standard_metadata_t s) {
    state start { p.extract(h.o); p.extract(h.r); transition accept; }
}
control V(inout headers_t h, inout metadata_t m) { apply { } }
control I(inout headers_t h, inout metadata_t m, inout standard_metadata_t s) {
    action eight() {
        h.r.r0 = h.o.a8 + h.o.b8;
        h.r.r1 = h.o.a8 - h.o.b8;
        h.r.r2 = h.o.a8 |+| h.o.b8;
        h.r.r3 = h.o.a8 |-| h.o.b8;
        h.r.r4 = (bit<8>)((int<8>)h.o.a8 |+| (int<8>)h.o.b8);
        h.r.r5 = (bit<8>)((int<8>)h.o.a8 |-| (int<8>)h.o.b8);
        h.r.r27 = h.o.a8 ++ h.o.b8;
        h.r.r28 = (bit<16>)h.o.a3 * (bit<16>)h.o.a13;
    }
    action thirtytwo() {
        h.r.r6 = h.o.a32 * h.o.b32;
        h.r.r7 = h.o.a32 << h.o.b5;
        h.r.r8 = h.o.a32 >> h.o.b5;
        h.r.r9 = (bit<32>)((int<32>)h.o.a32 >> h.o.b5);
        h.r.r10 = ~h.o.a32 ^ (h.o.b32 & 0xff00ff00);
        h.r.r11 = h.o.a32[23:8] ++ h.o.b32[31:16];
        h.r.r12 = (int<32>)h.o.a32 < (int<32>)h.o.b32 ? h.o.a32 : h.o.b32;
        h.r.r13 = -h.o.a32;
        h.o.a32[15:4] = h.o.b32[11:0];
    }
    action sixtyfour() {
        h.r.r14 = h.o.a64 + h.o.b64;
        h.r.r15 = h.o.a64 - h.o.b64;
        h.r.r16 = h.o.a64 * h.o.b64;
        h.r.r17 = h.o.a64 |+| h.o.b64;
        h.r.r18 = h.o.a64 |-| h.o.b64;
        h.r.r19 = (bit<64>)((int<64>)h.o.a64 |+| (int<64>)h.o.b64);
        h.r.r29 = (bit<64>)h.o.a59 + (h.o.a64 >> 3);
        h.r.r30 = (bit<64>)((int<64>)h.o.a64 >> h.o.b8);
        h.o.a59 = h.o.a59 + 1;
    }
    action wide() {
        h.r.r20 = h.o.a128 + h.o.b128;
        h.r.r21 = h.o.a128 - h.o.b128;
        h.r.r22 = (h.o.a128 & h.o.b128) | (h.o.a128 ^ ~h.o.b128);
        h.r.r23 = h.o.a128 << h.o.b8;
        h.r.r24 = h.o.a128 >> h.o.b8;
        h.r.r25 = (bit<128>)((int<128>)h.o.a128 >> h.o.b5);
        h.r.r26 = h.o.a128 * h.o.b128;
        m.wide = (bit<200>)h.o.a128 + (h.o.b128 ++ 72w5);
    }
    apply {
        eight();
        thirtytwo();
        sixtyfour();
        wide();
        if (h.o.a8 < h.o.b8) { h.r.c0 = 1; }
        if (h.o.a64 > h.o.b64) { h.r.c1 = 1; }
        if ((int<64>)h.o.a64 <= (int<64>)h.o.b64) { h.r.c2 = 1; }
        if (h.o.a128 < h.o.b128) { h.r.c3 = 1; }
        if ((int<128>)h.o.a128 >= (int<128>)h.o.b128) { h.r.c4 = 1; }
        if (h.o.a128 == h.o.b128 || h.o.a128[63:0] == h.o.a64) { h.r.c5 = 1; }
        if (!(h.o.a8 == h.o.b8) && h.o.a3 != 2) { h.r.c6 = 1; }
        m.signed16 = (int<16>)(int<8>)h.o.a8 - 100;
        if (m.signed16 < -128) { h.r.c7 = 1; }
        if (m.signed16 + 30000 > 29990) { h.r.c8 = 1; }
        m.signed128 = (int<128>)h.o.a128;
        if (m.signed128 < 0) { h.r.c9 = 1; }
        if (m.wide[199:100] > m.wide[99:0]) { h.r.c10 = 1; }
        if (h.o.a32 == 32w0xdeadbeef) { h.r.c11 = 1; }
        h.r.c12 = (bit<1>)(h.o.a13 > 4000);
        h.r.c13 = h.o.a13[12:12];
        bool both = h.o.a3 == 7 && h.o.b5 == 31;
        if (both) { h.r.c14 = 1; } else { h.r.c15 = 1; }
        s.egress_spec = 1;
    }
}
control E(inout headers_t h, inout metadata_t m, inout standard_metadata_t s) { apply { } }
control C(inout headers_t h, inout metadata_t m) { apply { } }
control D(packet_out p, in headers_t h) { apply { p.emit(h); } }
V1Switch(P(), V(), I(), E(), C(), D()) main;
