// SPDX-License-Identifier: Apache-2.0
// A small program with all features that the tests of targets need: all match kinds, const entries, direct and
// indirect counters, a register, multicast with egress rewriting, and an IPv4 checksum.
#include <core.p4>
#include <v1model.p4>

header ethernet_t {
    bit<48> destination;
    bit<48> source;
    bit<16> type;
}

header ipv4_t {
    bit<4>  version;
    bit<4>  ihl;
    bit<8>  tos;
    bit<16> length;
    bit<16> id;
    bit<16> fragment;
    bit<8>  ttl;
    bit<8>  protocol;
    bit<16> checksum;
    bit<32> source;
    bit<32> destination;
}

struct headers_t {
    ethernet_t ethernet;
    ipv4_t     ipv4;
}

struct metadata_t {
    bit<16> color;
}

parser RouterParser(packet_in packet, out headers_t hdr, inout metadata_t md, inout standard_metadata_t std) {
    state start {
        packet.extract(hdr.ethernet);
        transition select(hdr.ethernet.type) {
            0x0800: ipv4;
            default: accept;
        }
    }
    state ipv4 {
        packet.extract(hdr.ipv4);
        transition accept;
    }
}

control RouterVerify(inout headers_t hdr, inout metadata_t md) {
    apply {}
}

control RouterIngress(inout headers_t hdr, inout metadata_t md, inout standard_metadata_t std) {
    direct_counter(CounterType.packets_and_bytes) bridge_hits;
    direct_counter(CounterType.packets) acl_hits;
    counter(16, CounterType.packets_and_bytes) arrivals;
    register<bit<48>>(16) last_source;

    action drop() { mark_to_drop(std); }
    action pass() {}
    action to_port(bit<9> port) { std.egress_spec = port; }
    action to_group(bit<16> group) { std.mcast_grp = group; }
    action paint(bit<16> color) { md.color = color; }
    action next_hop(bit<9> port, bit<48> destination) {
        std.egress_spec = port;
        hdr.ethernet.destination = destination;
        hdr.ipv4.ttl = hdr.ipv4.ttl - 1;
    }

    @name("acl") table acl {
        key = {
            hdr.ethernet.source: ternary @name("source");
            hdr.ethernet.type: range @name("type");
            std.ingress_port: optional @name("port");
        }
        actions = { drop; pass; paint; }
        default_action = pass();
        counters = acl_hits;
        size = 64;
    }
    @name("bridge") table bridge {
        key = { hdr.ethernet.destination: exact @name("destination"); }
        actions = { to_port; to_group; drop; }
        default_action = drop();
        counters = bridge_hits;
        size = 8;
    }
    @name("routes") table routes {
        key = { hdr.ipv4.destination: lpm @name("destination"); }
        actions = { next_hop; pass; @defaultonly drop; }
        default_action = pass();
        size = 64;
    }
    @name("painted") table painted {
        key = { md.color: exact @name("color"); }
        actions = { to_port; pass; }
        const default_action = pass();
        const entries = {
            7: to_port(1);
            8: to_port(2);
        }
    }

    apply {
        arrivals.count((bit<32>)std.ingress_port);
        last_source.write((bit<32>)std.ingress_port, hdr.ethernet.source);
        switch (acl.apply().action_run) {
            drop: { exit; }
        }
        bridge.apply();
        if (hdr.ipv4.isValid()) {
            routes.apply();
        }
        painted.apply();
    }
}

control RouterEgress(inout headers_t hdr, inout metadata_t md, inout standard_metadata_t std) {
    action mark_copy(bit<48> source) { hdr.ethernet.source = source; }

    @name("copies") table copies {
        key = { std.egress_rid: exact @name("instance"); }
        actions = { mark_copy; NoAction; }
        default_action = NoAction();
        size = 64;
    }

    apply {
        if (std.egress_rid != 0) {
            copies.apply();
        }
    }
}

control RouterCompute(inout headers_t hdr, inout metadata_t md) {
    apply {
        update_checksum(hdr.ipv4.isValid(),
            { hdr.ipv4.version, hdr.ipv4.ihl, hdr.ipv4.tos, hdr.ipv4.length, hdr.ipv4.id, hdr.ipv4.fragment,
              hdr.ipv4.ttl, hdr.ipv4.protocol, hdr.ipv4.source, hdr.ipv4.destination },
            hdr.ipv4.checksum, HashAlgorithm.csum16);
    }
}

control RouterDeparser(packet_out packet, in headers_t hdr) {
    apply {
        packet.emit(hdr.ethernet);
        packet.emit(hdr.ipv4);
    }
}

V1Switch(RouterParser(), RouterVerify(), RouterIngress(), RouterEgress(), RouterCompute(), RouterDeparser()) main;
