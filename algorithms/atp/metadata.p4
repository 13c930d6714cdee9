// SPDX-License-Identifier: Apache-2.0
// Fields that one stage sets for the next ones. They start at 0.
#ifndef RAILWEAVE_ATP_METADATA_P4
#define RAILWEAVE_ATP_METADATA_P4

struct metadata_t {
    /* From the target, filled in by main.p4. */
    port_t ingress_port;
    port_t egress_port;
    bit<16> egress_rid;      // which copy of a result this is
    bit<1> checksum_error;   // the IPv4 header does not add up

    /* Decisions, applied once by main.p4. */
    verdict_t verdict;
    port_t port;
    mcast_t mcast_group;
    bit<32> loss;            // the injector's threshold
    bit<1> lost;             // this copy goes nowhere
    bit<1> rewritten;        // the IPv4 header has changed, so its checksum must be computed again

    /* From `workers` or `results`. */
    bit<1> taken;            // from a worker behind this switch, or for such workers
    fault_t fault;
    bitmap_t bit_of_sender;
    bitmap_t all_ranks;      // of the job, behind this switch
    cell_t cell;             // the aggregator that job and sequence number share with others

    /* What the registers say. */
    age_t age;               // AGE_STALE: another packet holds the aggregator, or no packet does
    bit<1> again;            // the sender is in already
    bit<1> complete;         // all workers behind this switch are in
}

#endif
