// SPDX-License-Identifier: Apache-2.0
// Numbers of odd and great widths, to 2048 bits: arithmetic, saturation, shifts by anything, slices to read
// and to write, concatenation, casts, comparisons.
#include <core.p4>
#include <v1model.p4>

header operands_t {
    bit<65> a65; bit<65> b65; bit<6> shift6;
    bit<1> a1; bit<1> b1; bit<1> c1; bit<5> pad;
    bit<512> a512; bit<512> b512; bit<8> shift8;
    bit<2048> a2048; bit<2048> b2048;
}
header results_t {
    bit<65> r0; bit<65> r1; bit<65> r2; bit<65> r3; bit<65> r4; bit<65> r5; bit<65> r6; bit<65> r7;
    bit<512> s0; bit<512> s1; bit<512> s2; bit<512> s3; bit<512> s4;
    bit<2048> t0; bit<2048> t1;
    bit<1> c0; bit<1> c1; bit<1> c2; bit<1> c3; bit<1> c4; bit<1> c5; bit<1> c6; bit<1> c7;
    bit<1> d0; bit<1> d1; bit<1> d2; bit<1> d3; bit<1> d4; bit<1> d5; bit<1> d6; bit<1> d7;
}
struct headers_t { operands_t o; results_t r; }
struct metadata_t { int<65> x; int<65> y; int<512> u; int<512> v; bit<130> both; bit<1> one; bool truth; }

parser P(packet_in p, out headers_t h, inout metadata_t m, inout standard_metadata_t s) {
    state start { p.extract(h.o); p.extract(h.r); transition accept; }
}
control V(inout headers_t h, inout metadata_t m) { apply { } }
control I(inout headers_t h, inout metadata_t m, inout standard_metadata_t s) {
    action sixtyfive() {
        m.x = (int<65>)h.o.a65;
        m.y = (int<65>)h.o.b65;
        m.both = h.o.a65 ++ h.o.b65;
        h.r.r0 = h.o.a65 |+| h.o.b65;
        h.r.r1 = h.o.a65 |-| h.o.b65;
        h.r.r2 = (bit<65>)(m.x |+| m.y);
        h.r.r3 = (bit<65>)(m.x |-| m.y);
        h.r.r4 = (bit<65>)(m.x >> h.o.shift6);
        h.r.r5 = h.o.a65 << h.o.shift8;
        h.r.r6 = (bit<65>)(-m.x * m.y);
        h.r.r7 = m.both[97:33];
        m.both[70:60] = h.o.a65[10:0];
    }
    action fivehundred() {
        m.u = (int<512>)h.o.a512;
        m.v = (int<512>)h.o.b512;
        h.r.s0 = (h.o.a512 + h.o.b512 * 3) ^ (~(h.o.a512 - h.o.b512) & h.o.b512);
        h.r.s1 = (bit<512>)(m.u |+| m.v);
        h.r.s2 = (bit<512>)(m.u |-| m.v) ^ (h.o.a512 >> h.o.shift8);
        h.r.s3 = (bit<512>)(m.u >> h.o.shift8) ^ (bit<512>)(int<512>)(int<65>)h.o.a65;
        h.r.s4 = h.o.a512[255:0] ++ h.o.b512[511:256];
        h.r.s4[300:37] = h.o.b512[263:0];
    }
    action great() {
        h.r.t0 = (h.o.a2048 + h.o.b2048) ^ ((h.o.a2048 << h.o.shift8) | (h.o.b2048 >> 255));
        h.r.t1 = (h.o.a2048 |-| h.o.b2048) ^ (h.o.a2048 * (bit<2048>)h.o.a65);
        h.r.t1[250:250] = h.o.a1;
        h.r.t1[1456:256] = h.o.a2048[1200:0];
    }
    action one() {
        m.one = h.o.a1 + h.o.b1;
        h.r.c0 = h.o.a1 - h.o.b1;
        h.r.c1 = h.o.a1 |+| h.o.b1;
        h.r.c2 = ~h.o.a1 & h.o.b1 | h.o.c1;
        h.r.c3 = m.one;
        m.truth = (bool)h.o.c1;
        h.r.c4 = (bit<1>)!m.truth;
        h.r.c5 = (bit<1>)(m.truth == (h.o.a1 == 1));
        h.r.c6 = -h.o.a1;
        h.r.c7 = h.o.a1 << 1;
    }
    apply {
        sixtyfive();
        fivehundred();
        great();
        one();
        if (m.x < m.y) { h.r.d0 = 1; }
        if (h.o.a65 >= h.o.b65) { h.r.d1 = 1; }
        if (m.u > m.v) { h.r.d2 = 1; }
        if (h.o.a2048 <= h.o.b2048) { h.r.d3 = 1; }
        if (m.x == -1 || m.y + 1 == 0) { h.r.d4 = 1; }
        if (m.both == (h.o.a65 ++ h.o.b65)) { h.r.d5 = 1; }
        if (h.o.a512 != h.o.b512 && h.o.a2048[256:256] != 1) { h.r.d6 = 1; }
        h.r.d7 = m.truth ? h.o.a1 : h.o.b1;
        s.egress_spec = 6;
    }
}
control E(inout headers_t h, inout metadata_t m, inout standard_metadata_t s) { apply { } }
control C(inout headers_t h, inout metadata_t m) { apply { } }
control D(packet_out p, in headers_t h) { apply { p.emit(h.r); } }
V1Switch(P(), V(), I(), E(), C(), D()) main;
