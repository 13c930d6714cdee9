// SPDX-License-Identifier: Apache-2.0
// All kinds of objects, with all limits that a P4Info can state, for a comparison of random updates with a model.
#include <core.p4>
#include <v1model.p4>

header fields_t {
    bit<1> one;
    bit<7> seven;
    bit<9> nine;
    bit<7> rest;
    bit<16> wide;
    bit<48> long;
}

struct headers_t {
    fields_t f;
}

struct metadata_t {
    bit<2> color;
    bit<1> known;
}

struct pair_t {
    bit<9> nine;
    bit<16> wide;
}

struct told_t {
    bit<48> long;
    int<8> signed;
}

parser OracleParser(packet_in packet, out headers_t hdr, inout metadata_t meta,
                    inout standard_metadata_t intrinsic) {
    value_set<bit<16>>(4) words;
    value_set<pair_t>(2) pairs;

    state start {
        packet.extract(hdr.f);
        transition select(hdr.f.wide) {
            words: known;
            default: more;
        }
    }
    state more {
        transition select(hdr.f.nine, hdr.f.wide) {
            pairs: known;
            default: accept;
        }
    }
    state known {
        meta.known = 1;
        transition accept;
    }
}

control OracleVerify(inout headers_t hdr, inout metadata_t meta) {
    apply {}
}

control OracleIngress(inout headers_t hdr, inout metadata_t meta, inout standard_metadata_t intrinsic) {
    @max_group_size(6)
    action_selector(HashAlgorithm.crc16, 32w12, 32w8) by_weight;
    @max_group_size(3) @selector_size_semantics("sum_of_members") @max_member_weight(4)
    action_selector(HashAlgorithm.crc16, 32w8, 32w8) by_member;
    action_selector(HashAlgorithm.crc16, 32w16, 32w8) unbounded;
    action_profile(32w4) members;

    direct_counter(CounterType.packets_and_bytes) exact_counter;
    direct_meter<bit<2>>(MeterType.bytes) exact_meter;
    direct_counter(CounterType.packets) constant_counter;
    direct_counter(CounterType.packets) mixed_counter;
    counter(4, CounterType.packets_and_bytes) packets;
    counter(1, CounterType.bytes) single;
    meter(4, MeterType.packets) two_rates;
    // p4c leaves these types out of the P4Info, where they were added by hand.
    @single_rate_two_color
    meter(2, MeterType.packets) two_colors;
    @single_rate_three_color
    meter(2, MeterType.packets) three_colors;
    register<bit<32>>(4) numbers;
    register<int<8>>(4) signs;
    register<bit<9>>(2) nines;

    action drop() {
        mark_to_drop(intrinsic);
    }
    action port(bit<9> out_port) {
        intrinsic.egress_spec = out_port;
    }
    action two(bit<9> out_port, bit<48> long) {
        intrinsic.egress_spec = out_port;
        hdr.f.long = long;
    }
    action counted(bit<9> out_port) {
        exact_counter.count();
        exact_meter.read(meta.color);
        intrinsic.egress_spec = out_port;
    }
    action constant_port(bit<9> out_port) {
        constant_counter.count();
        intrinsic.egress_spec = out_port;
    }
    action mixed_port(bit<9> out_port) {
        mixed_counter.count();
        intrinsic.egress_spec = out_port;
    }
    action tell() {
        digest<told_t>(1, { hdr.f.long, (int<8>)(bit<8>)hdr.f.seven });
    }

    table exacts {
        key = { hdr.f.nine: exact; hdr.f.wide: exact; }
        actions = { counted; @defaultonly NoAction; }
        default_action = NoAction();
        counters = exact_counter;
        meters = exact_meter;
        support_timeout = true;
        size = 8;
    }
    table prefixes {
        key = { hdr.f.long: lpm; }
        actions = { port; two; tell; @defaultonly drop; @tableonly NoAction; }
        default_action = drop();
        size = 8;
    }
    table mixed {
        key = { hdr.f.one: exact; hdr.f.nine: optional; hdr.f.wide: ternary; hdr.f.seven: range; }
        actions = { mixed_port; drop; NoAction; }
        counters = mixed_counter;
        size = 8;
    }
    table keyless {
        actions = { port; two; NoAction; }
    }
    table constant {
        key = { hdr.f.seven: ternary; }
        actions = { constant_port; drop; }
        const default_action = drop();
        counters = constant_counter;
        const entries = {
            1 &&& 3: constant_port(1);
            _: constant_port(2);
        }
    }
    table weighed {
        key = { hdr.f.wide: exact; hdr.f.long: selector; }
        actions = { port; two; drop; NoAction; }
        implementation = by_weight;
        size = 8;
    }
    table counted_members {
        key = { hdr.f.nine: ternary; hdr.f.long: selector; }
        actions = { port; two; NoAction; }
        implementation = by_member;
        size = 8;
    }
    table spread {
        key = { hdr.f.wide: lpm; hdr.f.long: selector; }
        actions = { port; drop; NoAction; }
        implementation = unbounded;
        size = 8;
    }
    table indirect {
        key = { hdr.f.seven: exact; }
        actions = { port; two; NoAction; }
        implementation = members;
        size = 8;
    }

    apply {
        packets.count((bit<32>)hdr.f.nine & 3);
        single.count(0);
        two_rates.execute_meter((bit<32>)hdr.f.nine & 3, meta.color);
        two_colors.execute_meter((bit<32>)hdr.f.nine & 1, meta.color);
        three_colors.execute_meter((bit<32>)hdr.f.nine & 1, meta.color);
        numbers.write((bit<32>)hdr.f.nine & 3, intrinsic.packet_length);
        signs.write((bit<32>)hdr.f.nine & 3, -8s1);
        nines.write((bit<32>)hdr.f.nine & 1, hdr.f.nine);
        exacts.apply();
        prefixes.apply();
        mixed.apply();
        keyless.apply();
        constant.apply();
        weighed.apply();
        counted_members.apply();
        spread.apply();
        indirect.apply();
    }
}

control OracleEgress(inout headers_t hdr, inout metadata_t meta, inout standard_metadata_t intrinsic) {
    apply {}
}

control OracleCompute(inout headers_t hdr, inout metadata_t meta) {
    apply {}
}

control OracleDeparser(packet_out packet, in headers_t hdr) {
    apply {
        packet.emit(hdr.f);
    }
}

V1Switch(OracleParser(), OracleVerify(), OracleIngress(), OracleEgress(), OracleCompute(),
         OracleDeparser()) main;
