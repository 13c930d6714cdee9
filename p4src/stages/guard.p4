// SPDX-License-Identifier: Apache-2.0
// Source guard: a host speaks only for itself. Its frames must carry its NIC's MAC and IPv4 address, in ARP as well, so
// it can pass neither for another host nor for this switch. A trunk leads to another switch, which guards its own ports.
// Any other port is none of the topology's: nobody may speak there. A VLAN tag would hide the addresses, and receivers
// take frames of VLAN 0 as untagged, so hosts send none.

control Guard(in headers_t hdr, inout metadata_t md) {
    @name(".trusted")
    action trusted() {
        md.known = 1;
    }

    @name(".trunk_ports")
    table trunk_ports {
        key = { md.ingress_port: exact @name("ingress_port"); }
        actions = { trusted; @defaultonly NoAction; }
        default_action = NoAction();
        size = PORTS;
    }

    @name(".own")
    action own() {
        md.known = 1;
    }

    @name(".ipv4_sources")
    table ipv4_sources {
        key = {
            md.ingress_port: exact @name("ingress_port");
            hdr.ethernet.src: exact @name("mac");
            hdr.ipv4.src: exact @name("address");
        }
        actions = { own; @defaultonly NoAction; }
        default_action = NoAction();
        size = MAX_SOURCES;
    }

    @name(".arp_sources")
    table arp_sources {
        key = {
            md.ingress_port: exact @name("ingress_port");
            hdr.ethernet.src: exact @name("mac");
            hdr.arp.sender_mac: exact @name("sender_mac");
            hdr.arp.sender_ip: exact @name("address");
        }
        actions = { own; @defaultonly NoAction; }
        default_action = NoAction();
        size = MAX_SOURCES;
    }

    @name(".other_sources")
    table other_sources {
        key = {
            md.ingress_port: exact @name("ingress_port");
            hdr.ethernet.src: exact @name("mac");
        }
        actions = { own; @defaultonly NoAction; }
        default_action = NoAction();
        size = PORTS;
    }

    apply {
        if (!trunk_ports.apply().hit) {
            if (hdr.ipv4.isValid()) {
                ipv4_sources.apply();
            } else if (hdr.arp.isValid()) {
                arp_sources.apply();
            } else if (hdr.ethernet.type != ETHERTYPE_VLAN && hdr.ethernet.type != ETHERTYPE_SERVICE_VLAN) {
                other_sources.apply();
            }
        }
    }
}
