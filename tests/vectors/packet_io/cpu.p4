// SPDX-License-Identifier: Apache-2.0
// Packets to and from a controller, entries with idle time-outs, and priorities of packets.
#include <core.p4>
#include <v1model.p4>

#define CPU_PORT 510

@controller_header("packet_in") header in_t { bit<9> ingress_port; bit<7> reason; }
@controller_header("packet_out") header out_t { bit<9> egress_port; bit<7> pad; }
header data_t { bit<8> key; bit<8> priority; bit<80> wide; }
struct headers_t { in_t in_; out_t out_; data_t d; }
struct metadata_t { }

parser P(packet_in p, out headers_t h, inout metadata_t m, inout standard_metadata_t s) {
    state start { transition select(s.ingress_port) { CPU_PORT: from_cpu; default: data; } }
    state from_cpu { p.extract(h.out_); transition data; }
    state data { p.extract(h.d); transition accept; }
}
control V(inout headers_t h, inout metadata_t m) { apply { } }
control I(inout headers_t h, inout metadata_t m, inout standard_metadata_t s) {
    action forward(bit<9> port) { s.egress_spec = port; }
    action punt() {
        h.in_.setValid();
        h.in_.ingress_port = s.ingress_port;
        h.in_.reason = 5;
        s.egress_spec = CPU_PORT;
    }
    table hosts {
        key = { h.d.key: exact; }
        actions = { forward; punt; }
        default_action = punt();
        support_timeout = true;
    }
    action mark(bit<8> x) { h.d.key = x; }
    table wide {
        key = { h.d.wide: range; h.d.priority: ternary; }
        actions = { mark; NoAction; }
    }
    apply {
        if (h.out_.isValid()) { s.egress_spec = h.out_.egress_port; h.out_.setInvalid(); return; }
        hosts.apply();
        wide.apply();
        if (h.d.priority < 8) { s.priority = h.d.priority[2:0]; }
    }
}
control E(inout headers_t h, inout metadata_t m, inout standard_metadata_t s) { apply { } }
control C(inout headers_t h, inout metadata_t m) { apply { } }
control D(packet_out p, in headers_t h) { apply { p.emit(h); } }
V1Switch(P(), V(), I(), E(), C(), D()) main;
