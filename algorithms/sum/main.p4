// SPDX-License-Identifier: Apache-2.0
// Sums chunks of numbers. `railweave algorithm new` copies this program.
#include "algorithm/begin.p4"

// The packet's own header. Numbers follow it: hdr.lanes.lane_00, lane_01 and so on, in hexadecimal.
header algorithm_h {
    bit<32> sequence;  // of the chunk, from 1 on, over all calls of a job
}

// Fields of your own, as md.own.
struct own_t {}

#include "algorithm/frame.p4"
#include "algorithm/chunk.p4"
#include "netreduce/sums.p4"

// For each packet of a member. It sets md.verdict; a packet without a verdict is dropped.
control Algorithm(inout headers_t hdr, inout metadata_t md) {
    apply {
        Chunk.apply(hdr.own.sequence, md);  // the chunk's cell, and the verdict: a result if all ranks are in
        if (md.age != AGE_STALE) {
            Sums.apply(hdr, md);            // adds the packet's numbers to the cell, and puts the sums into the packet
        }
    }
}

#include "algorithm/switch.p4"
