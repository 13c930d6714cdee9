// SPDX-License-Identifier: Apache-2.0
// Entries, groups, sessions and meters that a control plane writes at run time. `kind` chooses the part to test.
#include <core.p4>
#include <v1model.p4>

header h_t { bit<8> kind; bit<32> address; bit<16> number; bit<8> group; }
struct headers_t { h_t h; }
struct metadata_t { @field_list(1) bit<9> came_from; bit<2> colour; }

parser P(packet_in p, out headers_t h, inout metadata_t m, inout standard_metadata_t s) {
    state start { p.extract(h.h); transition accept; }
}
control V(inout headers_t h, inout metadata_t m) { apply { } }
control I(inout headers_t h, inout metadata_t m, inout standard_metadata_t s) {
    @name(".wide") register<bit<100>>(16) wide;
    @name(".seen") counter(16, CounterType.packets_and_bytes) seen;
    @name(".police") meter(4, MeterType.packets) police;
    direct_counter(CounterType.packets_and_bytes) hits;
    @name(".forward") action forward(bit<9> port) { s.egress_spec = port; }
    @name(".drop") action drop() { mark_to_drop(s); }
    @name(".hosts") table hosts {
        key = { h.h.address: exact; }
        actions = { forward; drop; }
        default_action = drop();
        counters = hits;
        size = 4096;
    }
    @name(".routes") table routes {
        key = { h.h.address: lpm; }
        actions = { forward; drop; }
        default_action = drop();
        size = 64;
    }
    @name(".rules") table rules {
        key = { h.h.address: ternary; h.h.number: range; h.h.group: optional; }
        actions = { forward; drop; }
        default_action = drop();
    }
    apply {
        if (!h.h.isValid()) { mark_to_drop(s); return; }
        if (h.h.kind == 0) { routes.apply(); }
        else if (h.h.kind == 1) { rules.apply(); }
        else { hosts.apply(); }
        if (h.h.kind == 2) { seen.count((bit<32>)h.h.number); }
        else if (h.h.kind == 3) { s.mcast_grp = (bit<16>)h.h.group; }
        else if (h.h.kind == 4) {
            m.came_from = s.ingress_port;
            clone_preserving_field_list(CloneType.I2E, 100, 1);
            h.h.address = 0xffffffff;
        } else if (h.h.kind == 6) { random(h.h.number, 100, 199); s.egress_spec = 1; }
        else if (h.h.kind == 7) { s.egress_spec = 1; }
        else if (h.h.kind == 8) {
            police.execute_meter((bit<32>)h.h.number, m.colour);
            h.h.group = (bit<8>)m.colour;
            s.egress_spec = 1;
        }
    }
}
control E(inout headers_t h, inout metadata_t m, inout standard_metadata_t s) {
    apply {
        if (h.h.kind == 9) { clone(CloneType.E2E, 200); }
        else if (s.instance_type == 1) { h.h.number = 8w0xc1 ++ (bit<8>)m.came_from; }
        else if (s.instance_type == 2) { h.h.number = 8w0xc2 ++ (bit<8>)m.came_from; }
        else if (h.h.kind == 3) { h.h.group = (bit<8>)s.egress_rid; }
        else if (h.h.kind == 5) { m.came_from = 3; clone(CloneType.E2E, 200); }
        else if (h.h.kind == 7) { recirculate_preserving_field_list(0); }
    }
}
control C(inout headers_t h, inout metadata_t m) { apply { } }
control D(packet_out p, in headers_t h) { apply { p.emit(h.h); } }
V1Switch(P(), V(), I(), E(), C(), D()) main;
