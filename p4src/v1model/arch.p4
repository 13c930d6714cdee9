// SPDX-License-Identifier: Apache-2.0
// The only file besides parser.p4 and main.p4 that knows v1model: its externs under the names that the stages use.
#ifndef RAILWEAVE_ARCH_P4
#define RAILWEAVE_ARCH_P4

#define V1MODEL_VERSION 20200408
#include <v1model.p4>

/* A register with one value of type T per slot, called `label` by P4Runtime. */
#define TEXT(label) #label
#define CELLS(T, cells, label) @name(TEXT(.label)) register<T, cell_t>(SLOTS) cells
/* The same with a value per `header_cell_t`, for ingress and egress. */
#define HEADER_CELLS_OF(T, cells, label) @name(TEXT(.label)) register<T, header_cell_t>(HEADER_CELLS) cells;
#define CELL_READ(cells, index, into) cells.read(into, index)
#define CELL_WRITE(cells, index, value) cells.write(index, value)

/* Packets and bytes per table entry; a table names it in its property `counters`, and actions need not count. */
#define ENTRY_COUNTER(name) direct_counter(CounterType.packets_and_bytes) name
#define COUNT_ENTRY(name)
/* Packets per port. */
#define PORT_COUNTER(counts, label) PACKET_COUNTER(PORTS, port_t, counts, label)
#define PACKET_COUNTER(size, T, counts, label) @name(TEXT(.label)) counter<T>(size, CounterType.packets) counts

#define CRC32(into, ...) hash(into, HashAlgorithm.crc32, 32w0, __VA_ARGS__, 64w0x100000000)
/* The way of a probe: with this step, without the last one, and the child of the last one. */
#define PATH_UP(hdr, md) (hdr.ina.slot << PATH_STEP | (bit<16>)hdr.ina.child)
#define PATH_DOWN(hdr, md) (hdr.ina.slot >> PATH_STEP)
#define PATH_CHILD(hdr, md) ((bit<8>)hdr.ina.slot[PATH_STEP - 1:0])

#define RANDOM32(into) random<bit<32>>(into, 0, 0xFFFFFFFF)

#endif
