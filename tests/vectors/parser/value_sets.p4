// SPDX-License-Identifier: Apache-2.0
// Parser value sets of one field, of several fields, and of a wide one; used in two states.
#include <core.p4>
#include <v1model.p4>

header op_t { bit<8> what; bit<12> vlan; bit<4> pad; bit<16> port; }
header wide_t { bit<72> address; }
header result_t { bit<8> way; }
struct service_t { bit<12> vlan; bit<16> port; }
struct headers_t { result_t result; op_t op; wide_t wide; }
struct metadata_t { bit<8> way; }

parser P(packet_in p, out headers_t h, inout metadata_t m, inout standard_metadata_t s) {
    value_set<bit<8>>(4) kinds;
    value_set<service_t>(4) services;
    value_set<bit<72>>(2) addresses;
    state start {
        p.extract(h.op);
        transition select(h.op.what) { 0xff: second; kinds: known; 0x10: ten; default: wide; }
    }
    state second { m.way = 1; transition select(h.op.port[7:0]) { kinds: known; default: accept; } }
    state known {
        m.way = m.way | 2;
        transition select(h.op.vlan, h.op.port) { services: service; default: wide; }
    }
    state service { m.way = m.way | 4; transition accept; }
    state ten { m.way = 8; transition accept; }
    state wide { p.extract(h.wide); transition select(h.wide.address) { addresses: found; default: accept; } }
    state found { m.way = m.way | 16; transition accept; }
}
control V(inout headers_t h, inout metadata_t m) { apply { } }
control I(inout headers_t h, inout metadata_t m, inout standard_metadata_t s) {
    apply { s.egress_spec = 8; h.result.setValid(); h.result.way = m.way; }
}
control E(inout headers_t h, inout metadata_t m, inout standard_metadata_t s) { apply { } }
control C(inout headers_t h, inout metadata_t m) { apply { } }
control D(packet_out p, in headers_t h) { apply { p.emit(h); } }
V1Switch(P(), V(), I(), E(), C(), D()) main;
