// SPDX-License-Identifier: Apache-2.0
// One object of each kind that P4Runtime can write, read or notify of.
#include <core.p4>
#include <v1model.p4>

const bit<9> CPU_PORT = 510;

@p4runtime_translation("", 32)
type bit<9> logical_port_t;

@controller_header("packet_in")
header packet_in_t {
    bit<9> ingress_port;
    bit<7> reason;
}

@controller_header("packet_out")
header packet_out_t {
    bit<9> egress_port;
    bit<7> color;
}

header ethernet_t {
    bit<48> destination;
    bit<48> source;
    bit<16> type;
}

struct headers_t {
    packet_in_t packet_in;
    packet_out_t packet_out;
    ethernet_t ethernet;
}

struct metadata_t {
    bit<1> marked;
    bit<2> color;
    bit<8> class;
    logical_port_t ingress;
}

struct learned_t {
    bit<48> source;
    bit<9> port;
}

parser EntitiesParser(packet_in packet, out headers_t hdr, inout metadata_t meta,
                      inout standard_metadata_t intrinsic) {
    value_set<bit<16>>(4) marked_types;

    state start {
        transition select(intrinsic.ingress_port) {
            CPU_PORT: from_controller;
            default: ethernet;
        }
    }
    state from_controller {
        packet.extract(hdr.packet_out);
        transition ethernet;
    }
    state ethernet {
        packet.extract(hdr.ethernet);
        transition select(hdr.ethernet.type) {
            marked_types: marked;
            default: accept;
        }
    }
    state marked {
        meta.marked = 1;
        transition accept;
    }
}

control EntitiesVerify(inout headers_t hdr, inout metadata_t meta) {
    apply {}
}

control EntitiesIngress(inout headers_t hdr, inout metadata_t meta, inout standard_metadata_t intrinsic) {
    action_selector(HashAlgorithm.crc16, 32w64, 32w8) next_hops;
    action_profile(32w4) classes;
    direct_counter(CounterType.packets_and_bytes) hosts_counter;
    direct_meter<bit<2>>(MeterType.packets) hosts_meter;
    counter(8, CounterType.packets) arrivals;
    meter(8, MeterType.bytes) rates;
    register<bit<32>>(8) sizes;

    action drop() {
        mark_to_drop(intrinsic);
    }
    action to_port(bit<9> port) {
        intrinsic.egress_spec = port;
    }
    action to_controller(bit<7> reason) {
        intrinsic.egress_spec = CPU_PORT;
        hdr.packet_in.setValid();
        hdr.packet_in.ingress_port = intrinsic.ingress_port;
        hdr.packet_in.reason = reason;
    }
    action learn() {
        digest<learned_t>(1, { hdr.ethernet.source, intrinsic.ingress_port });
    }
    action flood(bit<16> group) {
        intrinsic.mcast_grp = group;
    }
    action classify(bit<8> class) {
        meta.class = class;
    }
    action host_port(bit<9> port) {
        hosts_counter.count();
        hosts_meter.read(meta.color);
        intrinsic.egress_spec = port;
    }

    table hosts {
        key = { hdr.ethernet.destination: exact; }
        actions = { host_port; @defaultonly NoAction; }
        default_action = NoAction();
        counters = hosts_counter;
        meters = hosts_meter;
        support_timeout = true;
        size = 64;
    }
    table sources {
        key = { hdr.ethernet.source: exact; }
        actions = { NoAction; learn; }
        default_action = NoAction();
        size = 64;
    }
    table spread {
        key = {
            hdr.ethernet.destination: lpm;
            hdr.ethernet.source: selector;
        }
        actions = { to_port; drop; NoAction; }
        implementation = next_hops;
        size = 64;
    }
    table classified {
        key = { hdr.ethernet.type: exact; }
        actions = { classify; NoAction; }
        implementation = classes;
        size = 16;
    }
    table policy {
        key = {
            meta.marked: exact;
            meta.ingress: optional;
            hdr.ethernet.type: ternary;
            meta.class: range;
        }
        actions = { drop; to_port; to_controller; flood; NoAction; }
        default_action = NoAction();
        size = 64;
    }

    apply {
        meta.ingress = (logical_port_t)intrinsic.ingress_port;
        arrivals.count((bit<32>)intrinsic.ingress_port & 7);
        rates.execute_meter((bit<32>)intrinsic.ingress_port & 7, meta.color);
        sizes.write((bit<32>)intrinsic.ingress_port & 7, intrinsic.packet_length);
        if (hdr.packet_out.isValid()) {
            intrinsic.egress_spec = hdr.packet_out.egress_port;
            hdr.packet_out.setInvalid();
        } else {
            drop();
            sources.apply();
            classified.apply();
            spread.apply();
            hosts.apply();
            policy.apply();
        }
    }
}

control EntitiesEgress(inout headers_t hdr, inout metadata_t meta, inout standard_metadata_t intrinsic) {
    apply {}
}

control EntitiesCompute(inout headers_t hdr, inout metadata_t meta) {
    apply {}
}

control EntitiesDeparser(packet_out packet, in headers_t hdr) {
    apply {
        packet.emit(hdr.packet_in);
        packet.emit(hdr.ethernet);
    }
}

V1Switch(EntitiesParser(), EntitiesVerify(), EntitiesIngress(), EntitiesEgress(), EntitiesCompute(),
         EntitiesDeparser()) main;
