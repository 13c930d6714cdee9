// SPDX-License-Identifier: Apache-2.0
// Source guard: a host speaks only for itself. Its frames must carry its NIC's MAC and IPv4 address, in ARP as well, so
// it can pass neither for another host nor for this switch. A trunk leads to another switch, which guards its own ports.
// Any other port is none of the topology's: nobody may speak there. A VLAN tag would hide the addresses, and receivers
// take frames of VLAN 0 as untagged, so hosts send none.

#define MAX_SOURCES 1024       // per port a NIC that has its address, and before it has one

const bit<16> ETHERTYPE_VLAN = 0x8100;
const bit<16> ETHERTYPE_SERVICE_VLAN = 0x88A8;

/* A frame may pass if one of both bits, which start at 0, is set. Tables of one Tofino stage cannot set the same bit. */
control Guard(in headers_t hdr, in port_t ingress_port, inout bit<1> from_trunk, inout bit<1> own_source) {
    @name(".trusted")
    action trusted() {
        from_trunk = 1;
    }

    @name(".trunk_ports")
    table trunk_ports {
        key = { ingress_port: exact @name("ingress_port"); }
        actions = { trusted; @defaultonly NoAction; }
        default_action = NoAction();
        size = PORTS;
    }

    @name(".own")
    action own() {
        own_source = 1;
    }

    @name(".ipv4_sources")
    table ipv4_sources {
        key = {
            ingress_port: exact @name("ingress_port");
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
            ingress_port: exact @name("ingress_port");
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
            ingress_port: exact @name("ingress_port");
            hdr.ethernet.src: exact @name("mac");
        }
        actions = { own; @defaultonly NoAction; }
        default_action = NoAction();
        size = PORTS;
    }

    apply {
        trunk_ports.apply();
        if (hdr.ipv4.isValid()) {
            ipv4_sources.apply();
        } else if (hdr.arp.isValid()) {
            arp_sources.apply();
        } else if (hdr.ethernet.type != ETHERTYPE_VLAN && hdr.ethernet.type != ETHERTYPE_SERVICE_VLAN) {
            other_sources.apply();
        }
    }
}
