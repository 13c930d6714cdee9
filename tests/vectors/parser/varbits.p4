// SPDX-License-Identifier: Apache-2.0
// Variable-length fields: at the end of a header, in its middle off the byte boundary, in a stack, in
// variables, in checksums; with lengths that are too great, odd, or more than the packet has.
#include <core.p4>
#include <v1model.p4>

error { BadMagic }

header kind_t { bit<8> magic; bit<8> what; }
header options_t {
    bit<4> version; bit<4> words;
    bit<16> check;
    bit<32> address;
    varbit<96> options;
}
header middle_t { bit<3> before; varbit<40> data; bit<5> after; bit<8> bits; }
header piece_t { bit<7> bytes; bit<1> more; varbit<64> data; }
header length_t { bit<32> bits; }
header loose_t { varbit<32> data; }
header result_t {
    bit<32> error_code; bit<8> flags; bit<8> first; bit<8> packet_bytes; bit<8> last;
}
struct headers_t {
    kind_t kind; options_t options; length_t length; middle_t middle;
    piece_t[3] pieces; loose_t loose; options_t copy; loose_t again; result_t result;
}
struct metadata_t { bit<1> unused; }

parser P(packet_in p, out headers_t h, inout metadata_t m, inout standard_metadata_t s) {
    state start {
        p.extract(h.kind);
        verify(h.kind.magic == 0x5a, error.BadMagic);
        transition select(h.kind.what) {
            0 &&& 0x3: options;
            1 &&& 0x3: middle;
            2 &&& 0x3: pieces;
            default: loose;
        }
    }
    state options {
        bit<8> words = (bit<8>)p.lookahead<bit<4>>();
        p.extract(h.options, (bit<32>)(p.lookahead<bit<8>>()[3:0]) * 32);
        transition select(words) { default: accept; }
    }
    state middle {
        p.extract(h.length);
        p.extract(h.middle, h.length.bits);
        transition accept;
    }
    state pieces {
        p.extract(h.pieces.next, (bit<32>)(p.lookahead<bit<8>>()[7:1]) * 8);
        transition select(h.pieces.last.more) { 1: pieces; default: accept; }
    }
    state loose {
        p.extract(h.loose, (bit<32>)h.kind.what[4:2] * 8);
        transition accept;
    }
}
control V(inout headers_t h, inout metadata_t m) {
    apply {
        verify_checksum(h.options.isValid(), { h.options.version, h.options.words, h.options.address, h.options.options },
                        h.options.check, HashAlgorithm.csum16);
    }
}
control I(inout headers_t h, inout metadata_t m, inout standard_metadata_t s) {
    apply {
        s.egress_spec = 2;
        h.result.setValid();
        if (s.parser_error == error.NoError) { h.result.error_code = 0; }
        else if (s.parser_error == error.PacketTooShort) { h.result.error_code = 1; }
        else if (s.parser_error == error.HeaderTooShort) { h.result.error_code = 2; }
        else if (s.parser_error == error.ParserInvalidArgument) { h.result.error_code = 3; }
        else if (s.parser_error == error.StackOutOfBounds) { h.result.error_code = 4; }
        else if (s.parser_error == error.BadMagic) { h.result.error_code = 5; }
        else { h.result.error_code = 6; }
        h.result.flags = (bit<8>)s.checksum_error;
        if (h.options.isValid()) { h.result.flags = h.result.flags | 2; }
        if (h.middle.isValid()) {
            h.result.flags = h.result.flags | 4;
            h.result.first = (bit<8>)h.middle.before;
            h.result.last = (bit<8>)h.middle.after;
            h.middle.after = h.middle.after + 1;
        }
        if (h.pieces[1].isValid()) { h.result.flags = h.result.flags | 8; }
        if (h.kind.what[7:7] == 1) {
            h.copy = h.options;
            h.copy.address = h.copy.address + 1;
            if (h.loose.isValid()) {
                h.again.setValid();
                h.again.data = h.loose.data;
            }
        }
        if (h.kind.what[6:6] == 1) { h.pieces.push_front(1); }
        if (h.kind.what[5:5] == 1) { h.pieces.pop_front(1); h.options.setInvalid(); }
        if (h.again.isValid() && h.again.data == h.loose.data) { h.result.flags = h.result.flags | 16; }
    }
}
control E(inout headers_t h, inout metadata_t m, inout standard_metadata_t s) {
    apply { h.result.packet_bytes = (bit<8>)s.packet_length; }
}
control C(inout headers_t h, inout metadata_t m) {
    apply {
        update_checksum(h.copy.isValid(), { h.copy.version, h.copy.words, h.copy.address, h.copy.options },
                        h.copy.check, HashAlgorithm.csum16);
    }
}
control D(packet_out p, in headers_t h) {
    apply {
        p.emit(h.result); p.emit(h.kind); p.emit(h.options); p.emit(h.copy); p.emit(h.length); p.emit(h.middle);
        p.emit(h.pieces); p.emit(h.loose); p.emit(h.again);
    }
}
V1Switch(P(), V(), I(), E(), C(), D()) main;
