// SPDX-License-Identifier: Apache-2.0
// What egress does with a copy: for whom is it, and with lanes?

control Outward(inout headers_t hdr, inout metadata_t md) {
    bit<8> sender;    // child + 1, before and after the copy gets its receiver
    bit<8> receiver;

    action name_sender() {
        sender = hdr.ina.child + 1;
    }

    action name_receiver() {
        receiver = hdr.ina.child + 1;
    }

    action bare() {
        hdr.lanes.setInvalid();
        hdr.ipv4.total_length = BARE_IPV4_BYTES;
        hdr.udp.length = BARE_UDP_BYTES;
    }

    apply {
        name_sender();
        if (md.verdict == VERDICT_CHILD) {
            if (md.egress_rid[7:0] != sender) {
                md.lost = 1;
            }
        } else if (md.verdict == VERDICT_SPREAD && md.role == ROLE_CHILD) {
            if (md.egress_rid[7:0] == sender) {
                md.lost = 1;
            }
        } else if (md.verdict == VERDICT_FLOOD) {
            if (md.egress_port == md.ingress_port) {
                md.lost = 1;
            }
        }
        if (md.lost == 0 && (md.verdict == VERDICT_RESULT || md.verdict == VERDICT_CHILD
                || md.verdict == VERDICT_SPREAD)) {
            Replicas.apply(hdr, md);
        }
        name_receiver();
        if (md.member == 1 && hdr.ina.kind == KIND_RESULT
                && hdr.ina.flags & (FLAG_OWNER | FLAG_MISMATCH) == FLAG_OWNER && md.owner != receiver) {
            bare();
        }
    }
}
