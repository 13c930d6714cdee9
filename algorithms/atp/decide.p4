// SPDX-License-Identifier: Apache-2.0
// One table decides about each packet of a worker, and about each result. Its counters are the telemetry: each action's
// name is the name of a count.

control Decide(in headers_t hdr, inout metadata_t md) {
    ENTRY_COUNTER(packets);

    action on_to_server() { md.verdict = VERDICT_UNICAST; }

    @name(".bad_checksum") action bad_checksum() { md.verdict = VERDICT_DROP; }
    @name(".bad_ranks")    action bad_ranks()    { md.verdict = VERDICT_DROP; }
    @name(".absorb")       action absorb()       { md.verdict = VERDICT_DROP; }
    @name(".duplicate")    action duplicate()    { md.verdict = VERDICT_DROP; }
    @name(".sum")          action sum()          { on_to_server(); }
    @name(".collision")    action collision()    { on_to_server(); }
    @name(".drain")        action drain()        { on_to_server(); }
    @name(".alone")        action alone()        { on_to_server(); }
    @name(".result")       action result()       { md.verdict = VERDICT_RESULT; }

    @name(".decide")
    table decide {
        key = {
            md.fault: ternary @name("fault");
            hdr.atp.kind: ternary @name("kind");
            hdr.atp.flags: ternary @name("flags");
            md.age: ternary @name("age");
            md.again: ternary @name("again");
            md.complete: ternary @name("complete");
        }
        actions = { bad_checksum; bad_ranks; absorb; duplicate; sum; collision; drain; alone; result; }
        const default_action = bad_ranks();
        counters = packets;
        // The first row that fits decides.
        const entries = {
            // fault         kind          flags                      age        again compl
            (FAULT_CHECKSUM, _,            _,                         _,         _,    _): bad_checksum();  // damaged on the way
            (FAULT_ROLE,     _,            _,                         _,         _,    _): bad_ranks();     // claims more than the sender's gradient
            (_,              ATP_RESULT,   _,                         _,         _,    _): result();        // to all workers here; the aggregator is free
            (_,              ATP_GRADIENT, ATP_RESEND &&& ATP_RESEND, AGE_STALE, _,    _): alone();         // nothing is held of it
            (_,              ATP_GRADIENT, ATP_RESEND &&& ATP_RESEND, _,         _,    _): drain();         // with all that is held
            (_,              ATP_GRADIENT, _,                         AGE_STALE, _,    _): collision();     // the aggregator is another's: best effort ends here
            (_,              ATP_GRADIENT, _,                         _,         1,    _): duplicate();     // counted already
            (_,              ATP_GRADIENT, _,                         _,         _,    0): absorb();        // others are missing
            (_,              ATP_GRADIENT, _,                         _,         _,    1): sum();           // the last one takes the sum along
        }
    }

    apply {
        decide.apply();
    }
}
