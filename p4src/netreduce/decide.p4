// SPDX-License-Identifier: Apache-2.0
// What becomes of a packet that takes part, in one table. Its counters are the telemetry: action names are the names of
// what is counted.

control Decide(inout headers_t hdr, inout metadata_t md) {
    ENTRY_COUNTER(packets);

    @name(".bad_length") action bad_length() { md.verdict = VERDICT_DROP; }
    @name(".bad_icrc")   action bad_icrc()   { md.verdict = VERDICT_DROP; }
    @name(".mismatch")   action mismatch()   { md.verdict = VERDICT_DROP; }
    @name(".absorb")     action absorb()     { md.verdict = VERDICT_DROP; }
    @name(".duplicate")  action duplicate()  { md.verdict = VERDICT_DROP; }
    @name(".result")     action result()     { md.verdict = VERDICT_RESULT; }
    @name(".repeat")     action repeat()     { md.verdict = VERDICT_UNICAST; }

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
            md.age: ternary @name("age");
            md.again: ternary @name("again");
            md.complete: ternary @name("complete");
        }
        actions = { bad_length; bad_icrc; mismatch; absorb; duplicate; result; repeat; acknowledge; }
        const default_action = bad_length();
        counters = packets;
        // The first row that fits decides.
        const entries = {
            // fault         age        again compl
            (FAULT_LENGTH,   _,         _,    _): bad_length();   // not all lanes: hosts fill their last packet up
            (FAULT_CHECKSUM, _,         _,    _): bad_icrc();     // damaged on the way
            (FAULT_SHAPE,    _,         _,    _): mismatch();     // at another place in a message than the others' packets
            (_,              AGE_STALE, _,    _): acknowledge();
            (_,              _,         0,    0): absorb();       // others are missing
            (_,              _,         1,    0): duplicate();    // counted already, others are missing
            (_,              _,         0,    1): result();       // the last one: the sum goes on, on every connection
            (_,              _,         1,    1): repeat();       // lost behind the switch: the sum again, on this connection
        }
    }

    apply {
        decide.apply();
    }
}
