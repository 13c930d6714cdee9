// SPDX-License-Identifier: Apache-2.0
// What becomes of a packet that takes part, in one table. Its counters are the telemetry: action names are the names of
// what is counted.

control Decide(inout headers_t hdr, inout metadata_t md) {
    ENTRY_COUNTER(packets);

    @name(".bad_length")   action bad_length()   { md.verdict = VERDICT_DROP; }
    @name(".bad_icrc")     action bad_icrc()     { md.verdict = VERDICT_DROP; }
    @name(".mismatch")     action mismatch()     { md.verdict = VERDICT_DROP; }
    @name(".absorb")       action absorb()       { md.verdict = VERDICT_DROP; }
    @name(".duplicate")    action duplicate()    { md.verdict = VERDICT_DROP; }
    @name(".early_result") action early_result() { md.verdict = VERDICT_DROP; }
    @name(".late_result")  action late_result()  { md.verdict = VERDICT_DROP; }
    @name(".repeat")       action repeat()       { md.verdict = VERDICT_UNICAST; }

    /* A copy for each member, or for the switch above. */
    @name(".result")           action result()           { md.verdict = VERDICT_RESULT; }
    @name(".deliver_down")     action deliver_down()     { md.verdict = VERDICT_RESULT; }
    @name(".forward_up")       action forward_up()       { md.verdict = VERDICT_RESULT; }
    @name(".forward_up_again") action forward_up_again() { md.verdict = VERDICT_RESULT; }

    /* The slot holds later numbers, so that every receiver has had this sum (see main.p4), but the sender may lack the
     * acknowledgement: an empty packet with its PSN is a duplicate to its receiver, who says again how far it is. One
     * who has not had the sum after all refuses such a packet, and ends the connection. */
    @name(".acknowledge")
    action acknowledge() {
        md.verdict = VERDICT_UNICAST;
        md.ack_requests = md.bit_of_sender;
        hdr.bth.opcode = WRITE_MIDDLE;
        hdr.reth.setInvalid();
        hdr.immediate.setInvalid();
        hdr.lanes.setInvalid();
        hdr.udp.length = EMPTY_BYTES;
        hdr.ipv4.total_length = IPV4_HEADER_BYTES + EMPTY_BYTES;
    }

    @name(".decide")
    table decide {
        key = {
            md.fault: ternary @name("fault");
            md.from_above: ternary @name("from_above");
            md.age: ternary @name("age");
            md.again: ternary @name("again");
            md.complete: ternary @name("complete");
            md.is_root: ternary @name("is_root");
            md.has_result: ternary @name("has_result");
        }
        actions = {
            bad_length; bad_icrc; mismatch; absorb; duplicate; result; repeat; acknowledge;
            forward_up; forward_up_again; deliver_down; early_result; late_result;
        }
        const default_action = bad_length();
        counters = packets;
        // The first row that fits decides.
        const entries = {
            // fault         above age        again compl root result
            (FAULT_LENGTH,   1,    _,         _,    _,    _,   _): late_result();   // an empty one: the switch above holds later numbers
            (FAULT_LENGTH,   _,    _,         _,    _,    _,   _): bad_length();    // not all lanes: hosts fill their last packet up
            (FAULT_CHECKSUM, _,    _,         _,    _,    _,   _): bad_icrc();      // damaged on the way
            (FAULT_SHAPE,    _,    _,         _,    _,    _,   _): mismatch();      // at another place in a message than the others' packets
            // From above.
            (_,              1,    AGE_STALE, _,    _,    _,   _): late_result();   // nobody waits for it any more
            (_,              1,    _,         1,    _,    _,   _): late_result();   // delivered before
            (_,              1,    _,         0,    1,    _,   _): deliver_down();
            (_,              1,    _,         0,    0,    _,   _): early_result();  // kept: this switch has lost what members have sent, and they repeat it
            // From members, and from switches below.
            (_,              _,    AGE_STALE, _,    _,    _,   _): acknowledge();
            (_,              _,    _,         _,    _,    _,   1): repeat();        // lost behind the switch: the sum again, on this connection
            (_,              _,    _,         0,    0,    _,   _): absorb();        // others are missing
            (_,              _,    _,         1,    0,    _,   _): duplicate();     // counted already, others are missing
            (_,              _,    _,         0,    1,    1,   _): result();        // the last one: the sum goes on, on every connection
            (_,              _,    _,         1,    1,    1,   _): repeat();
            (_,              _,    _,         0,    1,    0,   _): forward_up();
            (_,              _,    _,         1,    1,    0,   _): forward_up_again();  // on the way up, or down, it may have been lost
        }
    }

    apply {
        decide.apply();
    }
}
