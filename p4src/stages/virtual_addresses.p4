// SPDX-License-Identifier: Apache-2.0
// The switch as a host: answers ARP and ICMP echo for its virtual addresses, and finds the packets addressed to them.

control VirtualAddresses(inout headers_t hdr, inout metadata_t md) {
    @name(".owned")
    action owned(mac_t mac) {
        md.virtual_mac = mac;
    }

    @name(".virtual_addresses")
    table virtual_addresses {
        key = { md.address: exact @name("address"); }
        actions = { owned; @defaultonly NoAction; }
        default_action = NoAction();
        size = MAX_GROUPS;
    }

    action answer_arp() {
        md.verdict = VERDICT_BACK;
        hdr.arp.operation = ARP_REPLY;
        hdr.arp.target_mac = hdr.arp.sender_mac;
        hdr.arp.target_ip = hdr.arp.sender_ip;
        hdr.arp.sender_mac = md.virtual_mac;
        hdr.arp.sender_ip = md.address;
        md.service = SERVICE_ANSWERED;
    }

    action answer_echo() {
        md.verdict = VERDICT_BACK;
        hdr.icmp.type = ICMP_ECHO_REPLY;
        // Only the type changes, by 8 in the upper byte of a word: one's complement addition (RFC 1624).
        bit<17> sum = (bit<17>)hdr.icmp.checksum + 17w0x0800;
        hdr.icmp.checksum = sum[15:0] + (bit<16>)sum[16:16];
        md.service = SERVICE_ANSWERED;
    }

    action aggregate() {
        md.service = SERVICE_AGGREGATE;
    }

    action refuse(fault_t fault) {
        md.service = SERVICE_AGGREGATE;
        md.fault = fault;
    }

    apply {
        if (virtual_addresses.apply().hit) {
            if (hdr.arp.isValid()) {
                if (hdr.arp.hardware == ARP_ETHERNET && hdr.arp.protocol == ETHERTYPE_IPV4
                        && hdr.arp.hardware_bytes == 6 && hdr.arp.protocol_bytes == 4
                        && hdr.arp.operation == ARP_REQUEST) {
                    answer_arp();
                }
            } else if (hdr.ethernet.dst == md.virtual_mac) {
                if (md.checksum_error == 1) {
                    refuse(FAULT_CHECKSUM);
                } else if (hdr.icmp.isValid() && hdr.icmp.type == ICMP_ECHO_REQUEST && hdr.icmp.code == 0) {
                    answer_echo();
                } else if (hdr.udp.isValid() && hdr.udp.dst_port == INA_UDP_PORT) {
                    aggregate();
                } else {
                    refuse(FAULT_SERVICE);
                }
            }
        }
    }
}
