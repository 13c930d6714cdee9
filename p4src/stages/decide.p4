// SPDX-License-Identifier: Apache-2.0
// What becomes of a packet addressed to this switch, in one table. Its counters are the telemetry: action names are
// the names of what is counted.

control Decide(inout headers_t hdr, inout metadata_t md) {
    ENTRY_COUNTER(packets);

    action wrong() {
        COUNT_ENTRY(packets);
        md.verdict = VERDICT_DROP;
    }

    action drop(outcome_t outcome) {
        COUNT_ENTRY(packets);
        md.verdict = VERDICT_DROP;
        md.outcome = outcome;
    }

    /* Dropped, because the packet is wrong. */
    @name(".no_service")   action no_service()   { wrong(); }
    @name(".bad_checksum") action bad_checksum() { wrong(); }
    @name(".bad_length")   action bad_length()   { wrong(); }
    @name(".bad_version")  action bad_version()  { wrong(); }
    @name(".bad_kind")     action bad_kind()     { wrong(); }
    @name(".bad_op")       action bad_op()       { wrong(); }
    @name(".refused")      action refused()      { wrong(); }
    @name(".bad_role")     action bad_role()     { drop(OUTCOME_REFUSED); }
    @name(".bad_slot")     action bad_slot()     { drop(OUTCOME_REFUSED); }

    /* Dropped, because there is nothing to send. */
    @name(".stale")       action stale()       { drop(OUTCOME_STALE); }
    @name(".absorb")      action absorb()      { drop(OUTCOME_ABSORB); }
    @name(".duplicate")   action duplicate()   { drop(OUTCOME_DUPLICATE); }
    @name(".late_result") action late_result() { drop(OUTCOME_LATE_RESULT); }
    @name(".no_path")     action no_path()     { drop(OUTCOME_PROBE); }

    /* To all children, to the parent, or back to the sender. */
    action to_children(outcome_t outcome) {
        COUNT_ENTRY(packets);
        hdr.ina.kind = KIND_RESULT;
        md.verdict = VERDICT_RESULT;
        md.outcome = outcome;
    }

    action send(verdict_t verdict, outcome_t outcome) {
        COUNT_ENTRY(packets);
        md.verdict = verdict;
        md.outcome = outcome;
    }

    @name(".result")           action result()           { to_children(OUTCOME_RESULT); }
    @name(".mismatch")         action mismatch()         { to_children(OUTCOME_MISMATCH); }
    @name(".deliver_down")     action deliver_down()     { to_children(OUTCOME_DELIVER_DOWN); }
    @name(".forward_up")       action forward_up()       { send(VERDICT_UP, OUTCOME_FORWARD_UP); }
    @name(".forward_up_again") action forward_up_again() { send(VERDICT_UP, OUTCOME_FORWARD_UP_AGAIN); }
    @name(".probe")            action probe()            { send(VERDICT_BACK, OUTCOME_PROBE); }

    /* Up and down the tree alike: the parent is in the group of what comes from below, not of what it sends. */
    @name(".spread")
    action spread() {
        md.mcast_group = md.spread_group;
        send(VERDICT_SPREAD, OUTCOME_SPREAD);
    }

    @name(".reflect")
    action reflect() {
        hdr.ina.kind = KIND_RESULT;
        send(VERDICT_BACK, OUTCOME_REFLECT);
    }

    /* A probe to the root leaves its way here, by which the answer comes back. */
    @name(".probe_up")
    action probe_up() {
        hdr.ina.slot = PATH_UP(hdr, md);
        send(VERDICT_UP, OUTCOME_PROBE);
    }

    @name(".probe_down")
    action probe_down() {
        hdr.ina.child = PATH_CHILD(hdr, md);
        hdr.ina.slot = PATH_DOWN(hdr, md);
        send(VERDICT_CHILD, OUTCOME_PROBE);
    }

    @name(".decide")
    table decide {
        key = {
            md.fault: ternary @name("fault");
            hdr.ina.kind: ternary @name("kind");
            md.role: ternary @name("role");
            md.age: ternary @name("age");
            md.again: ternary @name("again");
            md.complete: ternary @name("complete");
            md.is_root: ternary @name("is_root");
            md.has_result: ternary @name("has_result");
            md.bit_of_sender[0:0]: ternary @name("child_0");
            hdr.ina.flags: ternary @name("flags");
        }
        actions = {
            no_service; bad_checksum; bad_length; bad_version; bad_kind; bad_op; refused; bad_role; bad_slot;
            stale; absorb; duplicate; late_result; no_path;
            result; mismatch; deliver_down; forward_up; forward_up_again; reflect;
            probe; probe_up; probe_down; spread;
        }
        const default_action = stale();
        counters = packets;
        // The first row that fits decides.
        const entries = {
            // fault           kind             role         age        again compl root result child_0 flags
            // Refused: nothing of it has reached a register.
            (FAULT_SERVICE,    _,               _,           _,         _,    _,    _,   _,     _,     _): no_service();    // to our MAC, but nothing that we do
            (FAULT_CHECKSUM,   _,               _,           _,         _,    _,    _,   _,     _,     _): bad_checksum();  // damaged on the way
            (FAULT_LENGTH,     _,               _,           _,         _,    _,    _,   _,     _,     _): bad_length();    // short, or of another LANES
            (FAULT_VERSION,    _,               _,           _,         _,    _,    _,   _,     _,     _): bad_version();
            (FAULT_KIND,       _,               _,           _,         _,    _,    _,   _,     _,     _): bad_kind();
            (FAULT_OP,         _,               _,           _,         _,    _,    _,   _,     _,     _): bad_op();
            (FAULT_STRANGER,   _,               _,           _,         _,    _,    _,   _,     _,     _): refused();       // of no group here, or not from where its member sits
            (FAULT_ROLE,       _,               _,           _,         _,    _,    _,   _,     _,     _): bad_role();      // a result from below, a contribution from above
            (FAULT_SLOT,       _,               _,           _,         _,    _,    _,   _,     _,     _): bad_slot();      // outside the group's range
            // Probes: the first switch answers, or the root if that is asked for; the answer goes the way back.
            (_,                KIND_PROBE,      ROLE_PARENT, _,         _,    _,    _,   _,     _,     FLAG_TO_ROOT &&& FLAG_TO_ROOT): probe_down();
            (_,                KIND_PROBE,      ROLE_PARENT, _,         _,    _,    _,   _,     _,     _): no_path();              // nothing that a parent asks
            (_,                KIND_PROBE,      _,           _,         _,    _,    0,   _,     _,     FLAG_TO_ROOT &&& FLAG_TO_ROOT): probe_up();
            (_,                KIND_PROBE,      _,           _,         _,    _,    _,   _,     _,     _): probe();
            (_,                KIND_SPREAD,     _,           _,         _,    _,    _,   _,     _,     _): spread();            // to all others of the group; no slot knows of it
            // Contributions.
            (_,                _,               _,           AGE_STALE, _,    _,    _,   _,     _,     _): stale();             // nobody waits for that round any more
            (_,                KIND_CONTRIBUTE, _,           _,         0,    0,    _,   _,     _,     _): absorb();            // others are missing
            (_,                KIND_CONTRIBUTE, _,           _,         1,    0,    _,   _,     _,     _): duplicate();         // counted already, others are missing
            (_,                KIND_CONTRIBUTE, _,           _,         0,    1,    1,   _,     _,     FLAG_MISMATCH &&& FLAG_MISMATCH): mismatch();  // every rank must learn of it
            (_,                KIND_CONTRIBUTE, _,           _,         0,    1,    1,   _,     _,     _): result();            // the last one becomes the result
            (_,                KIND_CONTRIBUTE, _,           _,         1,    1,    1,   _,     _,     _): reflect();           // that child has lost the result
            (_,                KIND_CONTRIBUTE, _,           _,         0,    1,    0,   _,     _,     _): forward_up();        // the subtree is complete
            (_,                KIND_CONTRIBUTE, _,           _,         1,    1,    0,   1,     _,     _): reflect();           // that child has lost the result
            (_,                KIND_CONTRIBUTE, _,           _,         1,    1,    0,   0,     1,     _): forward_up_again();  // the parent may have lost our sum
            (_,                KIND_CONTRIBUTE, _,           _,         1,    1,    0,   0,     _,     _): duplicate();         // child 0 has no result either, and asks for all
            // Results from the parent.
            (_,                KIND_RESULT,     _,           _,         0,    _,    _,   _,     _,     _): deliver_down();
            (_,                KIND_RESULT,     _,           _,         1,    _,    _,   _,     _,     _): late_result();       // delivered before
        }
    }

    apply {
        decide.apply();
    }
}
