// SPDX-License-Identifier: Apache-2.0
// State that packets leave behind, hashes, checksums, resubmission and recirculation.
#include <core.p4>
#include <v1model.p4>

header ipv4_t {
    bit<4> version; bit<4> ihl; bit<8> tos; bit<16> length; bit<16> id; bit<3> flags; bit<13> offset;
    bit<8> ttl; bit<8> protocol; bit<16> checksum; bit<32> src; bit<32> dst;
}
header out_t {
    bit<16> crc16; bit<32> crc32; bit<16> csum; bit<16> xor; bit<32> ident; bit<8> bad; bit<8> passes;
    bit<8> small; bit<48> medium; bit<128> large; bit<32> total; bit<16> type; bit<16> sum; bit<8> index;
}
struct headers_t { ipv4_t ip; out_t out_; }
struct metadata_t { @field_list(1) bit<8> pass; bit<8> lost; @field_list(2) bit<8> round; }

parser P(packet_in p, out headers_t h, inout metadata_t m, inout standard_metadata_t s) {
    state start { p.extract(h.ip); p.extract(h.out_); transition accept; }
}
control V(inout headers_t h, inout metadata_t m) {
    apply {
        verify_checksum(h.ip.isValid(), { h.ip.version, h.ip.ihl, h.ip.tos, h.ip.length, h.ip.id, h.ip.flags,
            h.ip.offset, h.ip.ttl, h.ip.protocol, h.ip.src, h.ip.dst }, h.ip.checksum, HashAlgorithm.csum16);
    }
}
control I(inout headers_t h, inout metadata_t m, inout standard_metadata_t s) {
    register<bit<5>>(8) small;
    register<bit<48>>(8) medium;
    register<bit<128>>(8) large;
    register<bit<32>>(300) total;
    counter(8, CounterType.packets_and_bytes) seen;
    apply {
        s.egress_spec = 1;
        if (!h.out_.isValid()) { mark_to_drop(s); return; }
        h.out_.bad = (bit<8>)s.checksum_error;
        hash(h.out_.crc16, HashAlgorithm.crc16, 16w0, { h.ip.src, h.ip.dst, h.ip.protocol }, 32w0x10000);
        hash(h.out_.crc32, HashAlgorithm.crc32, 32w7, { h.ip.src, h.ip.flags, h.ip.offset }, 32w1000);
        hash(h.out_.csum, HashAlgorithm.csum16, 16w0, { h.ip.src, h.ip.ttl }, 32w0x10000);
        hash(h.out_.xor, HashAlgorithm.xor16, 16w0, { h.ip.src, h.ip.id, h.ip.ttl }, 32w0x10000);
        hash(h.out_.ident, HashAlgorithm.identity, 32w0, { h.ip.tos, h.ip.length }, 64w0x100000000);
        bit<32> at = (bit<32>)h.out_.index;
        bit<5> s5; bit<48> s48; bit<128> s128; bit<32> s32;
        small.read(s5, at);
        if (h.out_.index < 8) {
            small.write(at, s5 + 3);
            h.out_.small = (bit<8>)s5;
            medium.read(s48, at);
            medium.write(at, s48 + (h.ip.src ++ h.ip.id));
            h.out_.medium = s48;
            large.read(s128, at);
            large.write(at, s128 + (h.ip.src ++ h.ip.dst ++ h.ip.src ++ h.ip.dst));
            h.out_.large = s128;
            seen.count(at);
        }
        total.read(s32, at);
        s32 = s32 + s.packet_length;
        total.write(at, s32);
        h.out_.total = s32;
        if (h.ip.ttl == 3 && m.pass < 2) {
            m.pass = m.pass + 1;
            m.lost = 77;
            resubmit_preserving_field_list(1);
        }
        h.out_.passes = m.pass + m.lost;
    }
}
control E(inout headers_t h, inout metadata_t m, inout standard_metadata_t s) {
    apply {
        h.out_.type = s.instance_type[15:0];
        h.ip.ttl = h.ip.ttl - 1;
        if (h.ip.protocol == 200 && m.round < 3) {
            m.round = m.round + 1;
            h.ip.id = h.ip.id + 1;
            recirculate_preserving_field_list(2);
        }
        if (h.ip.protocol == 201) { truncate(30); }
    }
}
control C(inout headers_t h, inout metadata_t m) {
    apply {
        update_checksum(h.ip.isValid(), { h.ip.version, h.ip.ihl, h.ip.tos, h.ip.length, h.ip.id, h.ip.flags,
            h.ip.offset, h.ip.ttl, h.ip.protocol, h.ip.src, h.ip.dst }, h.ip.checksum, HashAlgorithm.csum16);
        update_checksum_with_payload(h.ip.protocol == 17, { h.ip.src, h.out_.small }, h.out_.sum, HashAlgorithm.csum16);
    }
}
control D(packet_out p, in headers_t h) { apply { p.emit(h); } }
V1Switch(P(), V(), I(), E(), C(), D()) main;
