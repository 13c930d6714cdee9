// SPDX-License-Identifier: Apache-2.0
// TNA's externs under the names that the stages use.
#ifndef RAILWEAVE_ARCH_P4
#define RAILWEAVE_ARCH_P4

#include <core.p4>
#if __TARGET_TOFINO__ == 2
#include <t2na.p4>
#else
#include <tna.p4>
#endif

/* Tofino 1 parses 160 bytes in egress; Tofino 2 has no containers for 64 lanes in both directions. */
#if __TARGET_TOFINO__ == 2 && LANES == 32
#define LANES_IN_EGRESS
#endif

/* Packets and bytes per table entry: an action counts, and the table names the counter in its property `counters`. */
#define TEXT(label) #label
#define ENTRY_COUNTER(name) DirectCounter<bit<64>>(CounterType_t.PACKETS_AND_BYTES) name
#define COUNT_ENTRY(name) name.count()

/* Packets per port, and per cell. */
#define PORT_COUNTER(counts, label) PACKET_COUNTER(PORTS, port_t, counts, label)
#define PACKET_COUNTER(size, T, counts, label) \
    @name(TEXT(.label)) Counter<bit<32>, T>(size, CounterType_t.PACKETS) counts

/* A register with one value of type T per slot, called `label` by P4Runtime, and what its stateful ALU can do with a
 * cell: `held` is the cell's value, `result` what the packet gets of it. */
#define CELLS(T, cells, label) @name(TEXT(.label)) Register<T, cell_t>(SLOTS) cells
#define CELL_UPDATE(T, cells, name, held, ...) \
    RegisterAction<T, cell_t, T>(cells) name = { void apply(inout T held) { __VA_ARGS__ } };
#define CELL_ACTION(T, cells, name, R, held, result, ...) \
    RegisterAction<T, cell_t, R>(cells) name = { void apply(inout T held, out R result) { __VA_ARGS__ } };
/* Two lanes per cell, which one ALU computes at once. That of Tofino 2 gives a packet both. */
#define PAIRS(cells, n, m) @name(TEXT(.lane_##n##_##m)) Register<pair_t, cell_t>(SLOTS) cells
#define PAIR_UPDATE(cells, name, held, ...) \
    RegisterAction<pair_t, cell_t, lane_t>(cells) name = { void apply(inout pair_t held) { __VA_ARGS__ } };
#define PAIR_ACTION(cells, name, held, ...) \
    RegisterAction2<pair_t, cell_t, lane_t, lane_t>(cells) name = { \
        void apply(inout pair_t held, out lane_t first, out lane_t second) { \
            __VA_ARGS__ \
            first = held.first; \
            second = held.second; \
        } \
    };

/* Fields side by side in another one. The ALUs cannot move bits between containers of different sizes: a hash does. */
#define JOIN(T, name) Hash<T>(HashAlgorithm_t.IDENTITY) name;
#define JOINED(name, into, left, right) into = name.get({ left, right })

/* The way of a probe: with this step, without the last one, and the child of the last one. */
#define PATH_UP(hdr, md) md.path_up
#define PATH_DOWN(hdr, md) md.path_down
#define PATH_CHILD(hdr, md) md.path_child

#define UPDATE(name, index) name.execute(index)
#define EXECUTE(name, index, into, ...) into = name.execute(index, ##__VA_ARGS__)  // a pair into two

#endif
