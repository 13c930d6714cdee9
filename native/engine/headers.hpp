// SPDX-License-Identifier: Apache-2.0
// Headers in the packet header vector: extracting, emitting, copying and comparing them, and their stacks.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>

#include "engine/packet.hpp"
#include "engine/plan.hpp"

namespace railweave::engine {

/// Bytes that the header takes in a packet, whether it is valid or not.
std::size_t header_size(const Plan& plan, const Packet& packet, const HeaderPlan& header);

/// Copies a header without a variable field into or out of the PHV; `readable` bytes are readable at `from`.
/// It copies in whole steps of 16 bytes where there is room: then later loads of a part take it from the
/// store queue. The overlapping stores of memcpy would make them wait.
[[gnu::always_inline]] inline void copy_image(std::byte* to, const std::byte* from, const HeaderPlan& header,
                                              std::size_t readable) {
  if (header.room == 0 || readable < header.room) {
    std::memcpy(to, from, header.bytes);
  } else {
    for (std::uint32_t i = 0; i < header.room; i += 16) std::memcpy(to + i, from + i, 16);
  }
}

/// Makes all fields of a header without a variable field 0, in the same steps.
[[gnu::always_inline]] inline void clear_image(std::byte* image, const HeaderPlan& header) {
  if (header.room == 0) {
    std::memset(image, 0, header.bytes);
  } else {
    for (std::uint32_t i = 0; i < header.room; i += 16) std::memset(image + i, 0, 16);
  }
}

/// Fills a header with a variable field of `bits` bits from the packet. kNoError: done.
CoreError extract_variable(const Plan& plan, Packet& packet, const HeaderPlan& header, std::uint64_t bits);

/// Writes a header with a variable field as it is in packets; gives the number of bytes.
std::size_t emit_variable(const Plan& plan, const Packet& packet, const HeaderPlan& header, std::byte* to);

/// to = from: contents only if `from` is valid.
void copy_header(const Plan& plan, Packet& packet, const HeaderPlan& to, const HeaderPlan& from);

/// Makes an invalid header valid, with all fields 0. (A variable field keeps its length, as in BMv2.)
void add_header(const Plan& plan, Packet& packet, const HeaderPlan& header);

/// As BMv2 compares: an invalid header equals none, and leading zeros of variable fields do not count.
bool equal_headers(const Plan& plan, const Packet& packet, const HeaderPlan& a, const HeaderPlan& b);

/// Moves the elements of a stack by `count`, to higher or to lower indexes.
void push(const Plan& plan, Packet& packet, const StackPlan& stack, std::uint64_t count);
void pop(const Plan& plan, Packet& packet, const StackPlan& stack, std::uint64_t count);

/// to = from, with the count of extracted elements.
void copy_stack(const Plan& plan, Packet& packet, const StackPlan& to, const StackPlan& from);

/// Length of a variable field in bytes; its contents; to = from.
std::uint32_t variable_length(const Packet& packet, const VariablePlan& variable);
const unsigned char* variable_bytes(const Packet& packet, const VariablePlan& variable);
void copy_variable(Packet& packet, const VariablePlan& to, const VariablePlan& from);

}  // namespace railweave::engine
