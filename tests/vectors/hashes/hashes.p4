// SPDX-License-Identifier: Apache-2.0
// All algorithms that v1model names and BMv2 has, with ranges of every kind. Inputs include fields that end
// within bytes and fields of invalid headers. Also checksums over the payload.
#include <core.p4>
#include <v1model.p4>

header in_t { bit<3> a; bit<13> b; bit<48> c; bit<7> d; bit<1> e; bit<64> f; bit<128> g; bit<8> kind; }
header more_t { bit<5> p; bit<11> q; bit<32> r; }
header out_t {
    bit<16> crc16; bit<16> crc16c; bit<32> crc32; bit<32> crc32c; bit<16> csum; bit<16> xor; bit<64> ident;
    bit<8> small; bit<32> ranged; bit<16> none; bit<64> wide; bit<32> based; bit<8> bad; bit<16> more;
}
header sums_t { bit<16> one; bit<16> two; bit<32> three; bit<16> four; }
struct headers_t { in_t i; more_t m; out_t o; sums_t s; }
struct metadata_t { }

parser P(packet_in p, out headers_t h, inout metadata_t m, inout standard_metadata_t s) {
    state start {
        p.extract(h.i);
        transition select(h.i.kind[0:0]) { 1: more; default: rest; }
    }
    state more { p.extract(h.m); transition rest; }
    state rest { p.extract(h.o); p.extract(h.s); transition accept; }
}
control V(inout headers_t h, inout metadata_t m) {
    apply {
        verify_checksum_with_payload(h.i.kind[1:1] == 1, { h.i.c, h.i.f }, h.s.one, HashAlgorithm.csum16);
        verify_checksum(h.i.kind[2:2] == 1, { h.i.a, h.i.b, h.m.p, h.m.q }, h.s.two, HashAlgorithm.xor16);
    }
}
control I(inout headers_t h, inout metadata_t m, inout standard_metadata_t s) {
    apply {
        s.egress_spec = 1;
        if (!h.s.isValid()) { mark_to_drop(s); return; }
        h.o.bad = (bit<8>)s.checksum_error;
        hash(h.o.crc16, HashAlgorithm.crc16, 16w0, { h.i.a, h.i.b, h.i.c, h.i.d }, 32w0x10000);
        hash(h.o.crc16c, HashAlgorithm.crc16_custom, 16w0, { h.i.a, h.i.c, h.i.e, h.i.g }, 32w0x10000);
        hash(h.o.crc32, HashAlgorithm.crc32, 32w0, { h.i.g, h.i.f }, 64w0x100000000);
        if (h.m.isValid()) {
            hash(h.o.crc32c, HashAlgorithm.crc32_custom, 32w0, { h.i.d, h.i.e, h.m.p, h.m.q }, 64w0x100000000);
            hash(h.o.more, HashAlgorithm.crc16, 16w0, { h.m.p, h.m.q, h.m.r }, 32w0x10000);
        }
        hash(h.o.csum, HashAlgorithm.csum16, 16w0, { h.i.a, h.i.b, h.i.f, h.i.kind }, 32w0x10000);
        hash(h.o.xor, HashAlgorithm.xor16, 16w0, { h.i.b, h.i.c, h.i.kind }, 32w0x10000);
        hash(h.o.ident, HashAlgorithm.identity, 64w0, { h.i.b, h.i.c }, 64w0xffffffffffffffff);
        hash(h.o.small, HashAlgorithm.crc32, 8w250, { h.i.c }, 8w17);
        hash(h.o.ranged, HashAlgorithm.crc16, 32w1000, { h.i.c, 12w0xabc, h.i.e }, 32w7);
        hash(h.o.none, HashAlgorithm.crc32, 16w5, { h.i.c }, 16w0);
        hash(h.o.wide, HashAlgorithm.identity, 64w3, { h.i.f }, 64w0xfffffffffffffffe);
        hash(h.o.based, HashAlgorithm.crc32, (bit<32>)h.i.b, { h.i.f }, h.i.c[31:0]);
        if (h.i.kind[3:3] == 1) { truncate(60); }
    }
}
control E(inout headers_t h, inout metadata_t m, inout standard_metadata_t s) { apply { } }
control C(inout headers_t h, inout metadata_t m) {
    apply {
        update_checksum_with_payload(h.i.isValid(), { h.i.c, h.i.f }, h.s.one, HashAlgorithm.csum16);
        update_checksum(h.m.isValid(), { h.i.a, h.i.b, h.m.p, h.m.q, h.s.one }, h.s.two, HashAlgorithm.xor16);
        update_checksum_with_payload(true, { h.i.d, h.i.e, h.i.kind }, h.s.three, HashAlgorithm.crc32);
        update_checksum_with_payload(h.i.kind[4:4] == 1, { h.i.a, h.i.b, h.m.p, h.m.q }, h.s.four, HashAlgorithm.crc16);
    }
}
control D(packet_out p, in headers_t h) { apply { p.emit(h); } }
V1Switch(P(), V(), I(), E(), C(), D()) main;
