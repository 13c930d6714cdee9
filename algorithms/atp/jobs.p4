// SPDX-License-Identifier: Apache-2.0
// Which packets this switch takes: gradients of workers behind it, and results for them. Their keys hold all that a
// sender must get right. Other packets are forwarded like any frame, for example gradients of other racks.

control Jobs(in headers_t hdr, inout metadata_t md) {
    ENTRY_COUNTER(packets);

    /* Nothing is a job's own: its aggregator for a sequence number is a hash of both, among as many as there are. */
    action choose(bit<16> slot_mask) {
        md.taken = 1;
        bit<32> chosen;
        CRC32(chosen, { hdr.atp.job, hdr.atp.sequence });
        md.cell = (cell_t)(chosen[15:0] & slot_mask);
    }

    @name(".worker")
    action worker(bitmap_t rank_bit, bitmap_t all_ranks, bit<16> slot_mask) {
        choose(slot_mask);
        md.bit_of_sender = rank_bit;
        md.all_ranks = all_ranks;
    }

    @name(".workers")
    table workers {
        key = {
            md.ingress_port: exact @name("ingress_port");
            hdr.ipv4.src: exact @name("source");
            hdr.atp.job: exact @name("job");
        }
        actions = { worker; @defaultonly NoAction; }
        default_action = NoAction();
        counters = packets;
        size = MAX_MEMBERS;
    }

    @name(".to_workers")
    action to_workers(mcast_t mcast_group, bit<16> slot_mask) {
        choose(slot_mask);
        md.mcast_group = mcast_group;
    }

    @name(".results")
    table results {
        key = {
            md.ingress_port: exact @name("ingress_port");
            hdr.ipv4.src: exact @name("source");
            hdr.ipv4.dst: exact @name("destination");
            hdr.atp.job: exact @name("job");
        }
        actions = { to_workers; @defaultonly NoAction; }
        default_action = NoAction();
        size = MAX_GROUPS;
    }

    apply {
        if (hdr.atp.isValid() && hdr.atp.version == ATP_VERSION) {
            if (hdr.atp.kind == ATP_GRADIENT) {
                workers.apply();
            } else if (hdr.atp.kind == ATP_RESULT) {
                results.apply();
            }
        }
    }
}
