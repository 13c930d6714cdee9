// SPDX-License-Identifier: Apache-2.0
// A packet chooses its paths: clones, resubmission, recirculation, multicast, truncation, drops. Egress writes
// the metadata into the packet.
#include <core.p4>
#include <v1model.p4>

header command_t {
    bit<16> clone_ingress; bit<16> clone_egress;  // bit 15: do, bits 14..8: list, bits 7..0: session
    bit<8> resubmit; bit<8> recirculate;          // bits 7..4: list, bits 3..0: how often
    bit<16> cut_ingress; bit<16> cut_egress; bit<16> group; bit<8> port; bit<8> flags;
}
header trace_t {
    bit<16> type; bit<16> ingress_type; bit<16> ingress_port; bit<16> egress_port; bit<16> rid; bit<16> length;
    bit<16> ingress_length; bit<16> spec; bit<16> group; bit<8> a; bit<16> b; bit<8> c; bit<8> rounds;
    bit<8> mark; bit<8> times;
}
header extra_t { bit<24> value; }
struct headers_t { command_t c; trace_t t; extra_t x; }
struct metadata_t {
    @field_list(1, 2, 3) bit<8> rounds;
    @field_list(1, 2) bit<8> a;
    @field_list(2) bit<16> b;
    @field_list(3) bit<8> c;
    bit<16> ingress_type;
    bit<16> ingress_length;
}

parser P(packet_in p, out headers_t h, inout metadata_t m, inout standard_metadata_t s) {
    state start {
        p.extract(h.c);
        p.extract(h.t);
        transition select(s.ingress_port) { 7: more; default: accept; }
    }
    state more { p.extract(h.x); transition accept; }
}
control V(inout headers_t h, inout metadata_t m) { apply { } }
control I(inout headers_t h, inout metadata_t m, inout standard_metadata_t s) {
    apply {
        if (!h.t.isValid()) { mark_to_drop(s); return; }
        m.ingress_type = s.instance_type[15:0];
        m.ingress_length = s.packet_length[15:0];
        h.t.mark = h.t.mark + 1;
        m.rounds = m.rounds + 1;
        m.a = m.a + 3;
        m.b = m.b + 1000;
        m.c = m.c + 5;
        s.egress_spec = (bit<9>)h.c.port;
        if (h.c.cut_ingress != 0) { truncate((bit<32>)h.c.cut_ingress); }
        if (h.c.clone_ingress[15:15] == 1) {
            if (h.c.clone_ingress[14:8] == 1) { clone_preserving_field_list(CloneType.I2E, (bit<32>)h.c.clone_ingress[7:0], 1); }
            else if (h.c.clone_ingress[14:8] == 2) { clone_preserving_field_list(CloneType.I2E, (bit<32>)h.c.clone_ingress[7:0], 2); }
            else { clone(CloneType.I2E, (bit<32>)h.c.clone_ingress[7:0]); }
        }
        if (m.rounds[3:0] <= h.c.resubmit[3:0]) {
            if (h.c.resubmit[7:4] == 2) { resubmit_preserving_field_list(2); }
            else { resubmit_preserving_field_list(3); }
        }
        if (h.c.flags[4:4] == 1) { h.x.setValid(); h.x.value = 0x112233; }
        if (h.c.flags[5:5] == 1) { h.x.setInvalid(); }
        s.mcast_grp = h.c.group;
        if (h.c.flags[0:0] == 1) { mark_to_drop(s); }
        if (h.c.flags[1:1] == 1) { s.egress_spec = 511; }
        if (h.c.flags[2:2] == 1) { exit; }
    }
}
control E(inout headers_t h, inout metadata_t m, inout standard_metadata_t s) {
    apply {
        h.t.type = s.instance_type[15:0];
        h.t.ingress_type = m.ingress_type;
        h.t.ingress_port = (bit<16>)s.ingress_port;
        h.t.egress_port = (bit<16>)s.egress_port;
        h.t.spec = (bit<16>)s.egress_spec;
        h.t.group = s.mcast_grp;
        h.t.rid = s.egress_rid;
        h.t.length = s.packet_length[15:0];
        h.t.ingress_length = m.ingress_length;
        h.t.rounds = m.rounds;
        h.t.a = m.a;
        h.t.b = m.b;
        h.t.c = m.c;
        h.t.times = h.t.times + 1;
        if (h.c.cut_egress != 0) { truncate((bit<32>)h.c.cut_egress); }
        if (h.c.clone_egress[15:15] == 1 && s.instance_type != 2) {
            m.a = m.a + 100;
            if (h.c.clone_egress[14:8] == 1) { clone_preserving_field_list(CloneType.E2E, (bit<32>)h.c.clone_egress[7:0], 1); }
            else if (h.c.clone_egress[14:8] == 2) { clone_preserving_field_list(CloneType.E2E, (bit<32>)h.c.clone_egress[7:0], 2); }
            else { clone(CloneType.E2E, (bit<32>)h.c.clone_egress[7:0]); }
            h.t.mark = h.t.mark + 16;
        }
        if (h.c.recirculate[3:0] != 0 && s.instance_type != 1 && s.instance_type != 2) {
            h.c.recirculate = h.c.recirculate - 1;
            if (h.c.recirculate[7:4] == 1) { recirculate_preserving_field_list(1); }
            else { recirculate_preserving_field_list(3); }
        }
        if (h.c.flags[3:3] == 1) { mark_to_drop(s); }
        if (h.c.flags[6:6] == 1 && s.instance_type == 5) { mark_to_drop(s); }
    }
}
control C(inout headers_t h, inout metadata_t m) { apply { } }
control D(packet_out p, in headers_t h) { apply { p.emit(h); } }
V1Switch(P(), V(), I(), E(), C(), D()) main;
