// SPDX-License-Identifier: Apache-2.0
// Is the packet for this switch, is it whole, may its sender send it, and is it of the round in its slot? In one stage:
// a table decides what stages/virtual_addresses.p4 and check.p4 decide one condition after the other, and its actions
// compare the slot's serial number.

control Addressed(in headers_t hdr, inout tna_metadata_t meta) {
    @name(".owned")
    action owned(mac_t mac) {
        meta.ours = 1;
        meta.md.virtual_mac = mac;
        meta.mac_difference = hdr.ethernet.dst ^ mac;
    }

    @name(".virtual_addresses")
    table virtual_addresses {
        key = { meta.md.address: exact @name("address"); }
        actions = { owned; @defaultonly NoAction; }
        default_action = NoAction();
        size = MAX_GROUPS;
    }

    apply {
        virtual_addresses.apply();
    }
}

control Admit(inout headers_t hdr, inout tna_metadata_t meta) {
    CELLS(bit<32>, tags, slot_tag);

    CELL_ACTION(bit<32>, tags, compare_or_open, age_t, held, age,
        if (held == meta.md.tag) {
            age = AGE_SAME;
        } else if ((int<32>)(meta.md.tag - held) > 0) {
            held = meta.md.tag;
            age = AGE_NEW;
        } else {
            age = AGE_STALE;
        })

    CELL_ACTION(bit<32>, tags, compare, age_t, held, age,
        if (held == meta.md.tag) {
            age = AGE_SAME;
        } else {
            age = AGE_STALE;
        })

    /* What the members' table says stands for nothing in a packet that is not for it. */
    action bridge() {
        meta.md.member = 0;
    }

    action refuse(fault_t fault) {
        meta.md.service = SERVICE_AGGREGATE;
        meta.md.fault = fault;
        meta.md.member = 0;
    }

    action refuse_member(fault_t fault) {
        meta.md.service = SERVICE_AGGREGATE;
        meta.md.fault = fault;
    }

    action admit() {
        meta.md.service = SERVICE_AGGREGATE;
    }

    action contribution() {
        meta.md.service = SERVICE_AGGREGATE;
        EXECUTE(compare_or_open, meta.md.cell, meta.md.age);
    }

    /* Only a contribution opens a round: the parent has no result of one in which this switch has no part. */
    action result() {
        meta.md.service = SERVICE_AGGREGATE;
        EXECUTE(compare, meta.md.cell, meta.md.age);
    }

// Kinds 0 and 1, 2 and 3, and all four; what may stand in the other fields.
#define KINDS_OF_SLOTS KIND_CONTRIBUTE &&& 14
#define OTHER_KINDS KIND_PROBE &&& 14
#define ALL_KINDS KIND_CONTRIBUTE &&& 12
#define ALL_OPS OP_SUM &&& ~OP_MAX
#define ENOUGH 0 &&& 0xFFFE
#define WITH_OWNER FLAG_OWNER &&& FLAG_OWNER
    table admission {
        key = {
            meta.ours: ternary;
            meta.mac_difference: ternary;
            meta.checksum_wrong: ternary;
            meta.udp_lack: ternary;
            meta.length_difference: ternary;
            hdr.ina.version: ternary;
            hdr.ina.kind: ternary;
            hdr.ina.op: ternary;
            hdr.lanes.isValid(): ternary;
            hdr.ina.flags: ternary;
            meta.md.member: ternary;
            meta.md.role: ternary;
            meta.md.slot_excess: ternary;
        }
        actions = { bridge; refuse; refuse_member; admit; contribution; result; }
        const default_action = bridge();
        // The first row that fits decides. None says what must not be: rows of which more is right come first.
        const entries = {
            // ours mac checksum lack difference          version      kind            op              lanes   flags        member role     slot_excess
            (1, 0, true, _,         _,                 _,           _,              _,              _,    _,              _, _,           _): refuse(FAULT_CHECKSUM);
            (1, 0, _,    1,         IPV4_HEADER_BYTES, INA_VERSION, KIND_SPREAD,    ALL_OPS, _,    _,              _, _,           _): refuse(FAULT_LENGTH);
            (1, 0, _,    ENOUGH,    IPV4_HEADER_BYTES, INA_VERSION, OTHER_KINDS,    ALL_OPS, _,    _,              1, _,           _): admit();
            (1, 0, _,    ENOUGH,    IPV4_HEADER_BYTES, INA_VERSION, OTHER_KINDS,    ALL_OPS, _,    _,              _, _,           _): refuse(FAULT_STRANGER);
            (1, 0, _,    ENOUGH,    IPV4_HEADER_BYTES, INA_VERSION, KIND_CONTRIBUTE, ALL_OPS,true, _,              1, ROLE_CHILD,  0): contribution();
            (1, 0, _,    1,         IPV4_HEADER_BYTES, INA_VERSION, KIND_CONTRIBUTE, ALL_OPS,_,    WITH_OWNER,     1, ROLE_CHILD,  0): contribution();
            (1, 0, _,    ENOUGH,    IPV4_HEADER_BYTES, INA_VERSION, KIND_RESULT,    ALL_OPS, true, _,              1, ROLE_PARENT, 0): result();
            (1, 0, _,    1,         IPV4_HEADER_BYTES, INA_VERSION, KIND_RESULT,    ALL_OPS, _,    WITH_OWNER,     1, ROLE_PARENT, 0): result();
            (1, 0, _,    ENOUGH,    IPV4_HEADER_BYTES, INA_VERSION, KIND_CONTRIBUTE, ALL_OPS,true, _,              1, ROLE_CHILD,  _): refuse_member(FAULT_SLOT);
            (1, 0, _,    1,         IPV4_HEADER_BYTES, INA_VERSION, KIND_CONTRIBUTE, ALL_OPS,_,    WITH_OWNER,     1, ROLE_CHILD,  _): refuse_member(FAULT_SLOT);
            (1, 0, _,    ENOUGH,    IPV4_HEADER_BYTES, INA_VERSION, KIND_RESULT,    ALL_OPS, true, _,              1, ROLE_PARENT, _): refuse_member(FAULT_SLOT);
            (1, 0, _,    1,         IPV4_HEADER_BYTES, INA_VERSION, KIND_RESULT,    ALL_OPS, _,    WITH_OWNER,     1, ROLE_PARENT, _): refuse_member(FAULT_SLOT);
            (1, 0, _,    ENOUGH,    IPV4_HEADER_BYTES, INA_VERSION, KINDS_OF_SLOTS, ALL_OPS, true, _,              1, _,           _): refuse_member(FAULT_ROLE);
            (1, 0, _,    1,         IPV4_HEADER_BYTES, INA_VERSION, KINDS_OF_SLOTS, ALL_OPS, _,    WITH_OWNER,     1, _,           _): refuse_member(FAULT_ROLE);
            (1, 0, _,    ENOUGH,    IPV4_HEADER_BYTES, INA_VERSION, KINDS_OF_SLOTS, ALL_OPS, true, _,              _, _,           _): refuse(FAULT_STRANGER);
            (1, 0, _,    1,         IPV4_HEADER_BYTES, INA_VERSION, KINDS_OF_SLOTS, ALL_OPS, _,    WITH_OWNER,     _, _,           _): refuse(FAULT_STRANGER);
            (1, 0, _,    ENOUGH,    IPV4_HEADER_BYTES, INA_VERSION, KINDS_OF_SLOTS, ALL_OPS, _,    _,              _, _,           _): refuse(FAULT_LENGTH);
            (1, 0, _,    ENOUGH,    IPV4_HEADER_BYTES, INA_VERSION, ALL_KINDS,      _,              _,    _,              _, _,           _): refuse(FAULT_OP);
            (1, 0, _,    ENOUGH,    IPV4_HEADER_BYTES, INA_VERSION, _,              _,              _,    _,              _, _,           _): refuse(FAULT_KIND);
            (1, 0, _,    ENOUGH,    IPV4_HEADER_BYTES, _,           _,              _,              _,    _,              _, _,           _): refuse(FAULT_VERSION);
            (1, 0, _,    _,         _,                 _,           _,              _,              _,    _,              _, _,           _): refuse(FAULT_LENGTH);
        }
    }

    action answer_arp() {
        meta.md.service = SERVICE_ANSWERED;
        meta.md.verdict = VERDICT_BACK;
        hdr.arp.operation = ARP_REPLY;
        hdr.arp.target_mac = hdr.arp.sender_mac;
        hdr.arp.target_ip = hdr.arp.sender_ip;
        hdr.arp.sender_mac = meta.md.virtual_mac;
        hdr.arp.sender_ip = meta.md.address;
    }

    /* Only the type changes, by 8 in the upper byte of a word: one's complement addition (RFC 1624). */
    action answer_echo(bit<16> difference) {
        meta.md.service = SERVICE_ANSWERED;
        meta.md.verdict = VERDICT_BACK;
        hdr.icmp.type = ICMP_ECHO_REPLY;
        hdr.icmp.checksum = hdr.icmp.checksum + difference;
    }

    /* IPv4, but not for aggregation. */
    table other_service {
        key = {
            meta.ours: ternary;
            meta.mac_difference: ternary;
            meta.checksum_wrong: ternary;
            hdr.icmp.isValid(): ternary;
            hdr.icmp.type: ternary;
            hdr.icmp.code: ternary;
            hdr.icmp.checksum: ternary;
        }
        actions = { bridge; refuse; answer_echo; }
        const default_action = bridge();
        const entries = {
            (1, 0, true, _,    _,                 _, _):              refuse(FAULT_CHECKSUM);
            (1, 0, _,    true, ICMP_ECHO_REQUEST, 0, 0xF800 &&& 0xF800): answer_echo(0x0801);  // with the carry
            (1, 0, _,    true, ICMP_ECHO_REQUEST, 0, _):              answer_echo(0x0800);
            (1, 0, _,    _,    _,                 _, _):              refuse(FAULT_SERVICE);
        }
    }

    table arp {
        key = {
            meta.ours: exact;
            hdr.arp.hardware: exact;
            hdr.arp.protocol: exact;
            hdr.arp.hardware_bytes: exact;
            hdr.arp.protocol_bytes: exact;
            hdr.arp.operation: exact;
        }
        actions = { bridge; answer_arp; }
        const default_action = bridge();
        const entries = { (1, ARP_ETHERNET, ETHERTYPE_IPV4, 6, 4, ARP_REQUEST): answer_arp(); }
    }

    apply {
        if (hdr.ina.isValid()) {
            admission.apply();
        } else if (hdr.ipv4.isValid()) {
            other_service.apply();
        } else if (hdr.arp.isValid()) {
            arp.apply();
        }
    }
}
