// SPDX-License-Identifier: Apache-2.0
// The aggregation program in a shell that P4Testgen can follow (`vectors.testgen`). Its tests run without the shell.
#define main whole
#include "v1model/main.p4"
#undef main

/* P4Testgen takes a condition as unknown if any part of the condition reads an invalid header. */
#define OR_0(header, field) header.field = header.isValid() ? header.field : 0;
#define READABLE(hdr) \
    OR_0(hdr.icmp, type) OR_0(hdr.icmp, code) OR_0(hdr.udp, dst_port) \
    OR_0(hdr.ina, kind) OR_0(hdr.ina, child) OR_0(hdr.ina, flags)

control VerifyPresent(inout headers_t hdr, inout metadata_t md) {
    apply {
        if (hdr.ipv4.isValid()) {
            VerifyIpv4.apply(hdr, md);
        }
    }
}

control ReadableIngress(inout headers_t hdr, inout metadata_t md, inout standard_metadata_t standard) {
    apply {
        READABLE(hdr)
        RailweaveIngress.apply(hdr, md, standard);
        if (standard.mcast_grp != 0) {  // P4Testgen drops multicast packets: send the only copy
            standard.egress_spec = (port_t)standard.mcast_grp;
            standard.mcast_grp = 0;
        }
    }
}

control ReadableEgress(inout headers_t hdr, inout metadata_t md, inout standard_metadata_t standard) {
    apply {
        READABLE(hdr)
        RailweaveEgress.apply(hdr, md, standard);
    }
}

V1Switch(Parse(), VerifyPresent(), ReadableIngress(), ReadableEgress(), UpdateIpv4(), Deparse()) main;
