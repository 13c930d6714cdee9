// SPDX-License-Identifier: Apache-2.0
// Registers of many widths, counters and meters, with indexes beyond their ends; direct counters and meters;
// random between equal bounds and between bounds in the wrong order.
#include <core.p4>
#include <v1model.p4>

header in_t { bit<8> index; bit<8> key; bit<64> value; bit<8> more; }
header out_t {
    bit<1> one; bit<7> seven; bit<33> r33; bit<64> r64; bit<71> r65; bit<208> r200; bit<8> color; bit<8> direct;
    bit<16> same; bit<16> wrong; bit<32> sized;
}
struct headers_t { in_t i; out_t o; }
struct metadata_t { bit<2> color; bit<8> wide_color; }

parser P(packet_in p, out headers_t h, inout metadata_t m, inout standard_metadata_t s) {
    state start { p.extract(h.i); p.extract(h.o); transition accept; }
}
control V(inout headers_t h, inout metadata_t m) { apply { } }
control I(inout headers_t h, inout metadata_t m, inout standard_metadata_t s) {
    register<bit<1>>(5) ones;
    register<bit<7>>(6) sevens;
    register<bit<33>>(4) r33;
    register<bit<64>>(3) r64;
    register<bit<65>>(4) r65;
    register<bit<200>>(4) r200;
    register<int<32>>(4) signs;
    counter(4, CounterType.packets) packets;
    counter(4, CounterType.bytes) bytes;
    counter(4, CounterType.packets_and_bytes) both;
    meter(4, MeterType.packets) police;
    direct_counter(CounterType.bytes) direct;
    direct_meter<bit<8>>(MeterType.bytes) limit;
    action hit(bit<8> x) { direct.count(); h.o.direct = x; limit.read(m.wide_color); }
    action miss() { direct.count(); h.o.direct = 99; limit.read(m.wide_color); }
    table counted {
        key = { h.i.key: exact; }
        actions = { hit; miss; }
        default_action = miss();
        counters = direct;
        meters = limit;
    }
    apply {
        s.egress_spec = 1;
        if (!h.o.isValid()) { mark_to_drop(s); return; }
        bit<32> at = (bit<32>)h.i.index;
        bit<65> a = 0; bit<200> b = 0; int<32> c = 0;
        ones.read(h.o.one, at); ones.write(at, h.o.one + 1);
        sevens.read(h.o.seven, at); sevens.write(at, h.o.seven + h.i.more[6:0]);
        r33.read(h.o.r33, at); r33.write(at, h.o.r33 + h.i.value[32:0]);
        r64.read(h.o.r64, at); r64.write(at, h.o.r64 ^ h.i.value);
        r65.read(a, at); r65.write(at, a + (h.i.value ++ 1w1)); h.o.r65 = (bit<71>)a;
        r200.read(b, at); r200.write(at, b + (h.i.value ++ h.i.value ++ h.i.value ++ h.i.more)); h.o.r200 = (bit<208>)b;
        signs.read(c, at); signs.write(at, c - (int<32>)h.i.value[31:0]); h.o.sized = (bit<32>)c;
        packets.count(at);
        bytes.count(at);
        both.count((bit<32>)(h.i.index & 3));
        m.color = 3;
        police.execute_meter(at, m.color);
        h.o.color = (bit<8>)m.color;
        counted.apply();
        h.o.color[7:4] = m.wide_color[3:0];
        random(h.o.same, 16w777, 16w777);
        h.o.wrong = 0x1234;
        random(h.o.wrong, 16w9, 16w3);
    }
}
control E(inout headers_t h, inout metadata_t m, inout standard_metadata_t s) { apply { } }
control C(inout headers_t h, inout metadata_t m) { apply { } }
control D(packet_out p, in headers_t h) { apply { p.emit(h); } }
V1Switch(P(), V(), I(), E(), C(), D()) main;
