// SPDX-License-Identifier: Apache-2.0
// Loss as a feature: drops a packet with a probability set per port and direction. Loss = threshold / 2^32.

@name(".inject_loss")
action inject_loss(inout bit<32> loss, bit<32> threshold) {
    loss = threshold;
}

/* A table per direction, because P4Runtime knows tables by name; the two are otherwise alike. */
#define INJECTOR(Control, table_name, key_port, drops_name) \
control Control(inout metadata_t md) { \
    ENTRY_COUNTER(looked_up); \
    PORT_COUNTER(drops, drops_name); \
    @name(TEXT(.table_name)) \
    table table_name { \
        key = { key_port: exact @name("port"); } \
        actions = { inject_loss(md.loss); @defaultonly NoAction; } \
        default_action = NoAction(); \
        counters = looked_up; \
        size = PORTS; \
    } \
    apply { \
        if (table_name.apply().hit) { \
            bit<32> dice; \
            RANDOM32(dice); \
            if (dice < md.loss) { \
                md.lost = 1; \
                drops.count(key_port); \
            } \
        } \
    } \
}

INJECTOR(InjectorIngress, injector_ingress, md.ingress_port, injected_drops_ingress)
INJECTOR(InjectorEgress, injector_egress, md.egress_port, injected_drops_egress)
