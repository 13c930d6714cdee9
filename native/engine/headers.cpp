// SPDX-License-Identifier: Apache-2.0
#include "engine/headers.hpp"

#include <algorithm>
#include <climits>
#include <cstring>

#include "engine/wide.hpp"

namespace railweave::engine {
namespace {

std::uint32_t load32(const Packet& packet, std::uint32_t offset) {
  return load_le<std::uint32_t>(&packet.phv[offset]);
}

void store32(Packet& packet, std::uint32_t offset, std::uint64_t value) {
  store_le<std::uint32_t>(&packet.phv[offset], static_cast<std::uint32_t>(value));
}

/// Copies `count` bits between byte strings, most significant first.
void copy_bits(std::byte* to, std::uint64_t to_bit, const std::byte* from, std::uint64_t from_bit,
               std::uint64_t count) {
  if (to_bit % 8 == 0 && from_bit % 8 == 0 && count % 8 == 0) {
    if (count) std::memcpy(to + to_bit / 8, from + from_bit / 8, count / 8);
    return;
  }
  for (std::uint64_t done = 0; done < count;) {
    const std::uint64_t step = std::min<std::uint64_t>(count - done, 64);
    wide::Limb piece;
    wide::load_bits(&piece, 1, reinterpret_cast<const unsigned char*>(from), from_bit + done, step);
    wide::store_bits(&piece, 1, reinterpret_cast<unsigned char*>(to), to_bit + done, step);
    done += step;
  }
}

const VariablePlan& variable_of(const Plan& plan, const HeaderPlan& header) {
  return plan.variables[header.variable];
}

/// Exchanges the contents of two headers of the same type.
void swap_headers(const Plan& plan, Packet& packet, std::uint32_t first, std::uint32_t second) {
  const HeaderPlan &a = plan.headers[first], &b = plan.headers[second];
  const auto swap = [&](std::uint32_t x, std::uint32_t y, std::size_t bytes) {
    std::swap_ranges(&packet.phv[x], &packet.phv[x] + bytes, &packet.phv[y]);
  };
  swap(a.valid, b.valid, 1);
  swap(a.image, b.image, a.bytes);
  if (a.variable == kNone) return;
  const VariablePlan &p = variable_of(plan, a), &q = variable_of(plan, b);
  swap(p.offset, q.offset, VariablePlan::kLengthBytes + p.bytes);
}

void swap_elements(const Plan& plan, Packet& packet, const StackPlan& stack, std::size_t first,
                   std::size_t second) {
  for (std::size_t i = 0; i < stack.width; ++i) {
    swap_headers(plan, packet, stack.headers[first * stack.width + i],
                 stack.headers[second * stack.width + i]);
  }
}

/// Makes a header invalid that a shift moved past the end of its stack. An element of a stack of unions stays
/// valid: it comes in again at the other end, as in BMv2.
void invalidate(const Plan& plan, Packet& packet, const StackPlan& stack, std::size_t element) {
  if (!stack.of_unions) packet.byte(plan.headers[stack.headers[element]].valid) = 0;
}

bool equal_variables(const Packet& packet, const VariablePlan& a, const VariablePlan& b) {
  const unsigned char *p = variable_bytes(packet, a), *q = variable_bytes(packet, b);
  const auto *p_end = p + variable_length(packet, a), *q_end = q + variable_length(packet, b);
  while (p != p_end && *p == 0) ++p;
  while (q != q_end && *q == 0) ++q;
  return std::equal(p, p_end, q, q_end);
}

}  // namespace

std::uint32_t variable_length(const Packet& packet, const VariablePlan& variable) {
  return std::min(load32(packet, variable.offset), variable.bytes);
}

const unsigned char* variable_bytes(const Packet& packet, const VariablePlan& variable) {
  return reinterpret_cast<const unsigned char*>(&packet.phv[variable.offset]) + VariablePlan::kLengthBytes;
}

void copy_variable(Packet& packet, const VariablePlan& to, const VariablePlan& from) {
  const std::uint32_t length = std::min(variable_length(packet, from), to.bytes);
  std::memmove(&packet.phv[to.offset + VariablePlan::kLengthBytes],
               &packet.phv[from.offset + VariablePlan::kLengthBytes], length);
  store32(packet, to.offset, length);
}

std::size_t header_size(const Plan& plan, const Packet& packet, const HeaderPlan& header) {
  if (header.variable == kNone) return header.bytes;
  return header.bytes + variable_length(packet, variable_of(plan, header));
}

CoreError extract_variable(const Plan& plan, Packet& packet, const HeaderPlan& header, std::uint64_t bits) {
  // BMv2 takes the length as an int, which saturates at INT_MAX: not a whole number of bytes.
  if (bits % 8 || bits > INT_MAX) return CoreError::kParserInvalidArgument;
  const VariablePlan& variable = variable_of(plan, header);
  const std::uint64_t length = bits / 8;
  if (packet.bytes.size() - packet.cursor < header.bytes + length) return CoreError::kPacketTooShort;
  if (length > variable.bytes) return CoreError::kHeaderTooShort;
  const std::byte* from = packet.bytes.data() + packet.cursor;
  std::byte* image = &packet.phv[header.image];
  const std::uint64_t behind = header.split + bits;
  copy_bits(image, 0, from, 0, header.split);
  copy_bits(&packet.phv[variable.offset + VariablePlan::kLengthBytes], 0, from, header.split, bits);
  copy_bits(image, header.split, from, behind, header.bytes * 8ull - header.split);
  store32(packet, variable.offset, length);
  packet.byte(header.valid) = 1;
  packet.cursor += header.bytes + length;
  return CoreError::kNoError;
}

std::size_t emit_variable(const Plan& plan, const Packet& packet, const HeaderPlan& header, std::byte* to) {
  const VariablePlan& variable = variable_of(plan, header);
  const std::byte* image = &packet.phv[header.image];
  const std::uint64_t bits = 8ull * variable_length(packet, variable);
  copy_bits(to, 0, image, 0, header.split);
  copy_bits(to, header.split, &packet.phv[variable.offset + VariablePlan::kLengthBytes], 0, bits);
  copy_bits(to, header.split + bits, image, header.split, header.bytes * 8ull - header.split);
  return header.bytes + bits / 8;
}

void copy_header(const Plan& plan, Packet& packet, const HeaderPlan& to, const HeaderPlan& from) {
  packet.byte(to.valid) = packet.byte(from.valid);
  if (!packet.byte(from.valid)) return;
  std::memmove(&packet.phv[to.image], &packet.phv[from.image], std::min(to.bytes, from.bytes));
  if (to.variable != kNone && from.variable != kNone) {
    copy_variable(packet, variable_of(plan, to), variable_of(plan, from));
  }
}

void add_header(const Plan& plan, Packet& packet, const HeaderPlan& header) {
  if (packet.byte(header.valid)) return;
  std::memset(&packet.phv[header.image], 0, header.bytes);
  if (header.variable != kNone) {
    const VariablePlan& variable = variable_of(plan, header);
    std::memset(&packet.phv[variable.offset + VariablePlan::kLengthBytes], 0, variable.bytes);
  }
  packet.byte(header.valid) = 1;
  packet.length += header_size(plan, packet, header);
}

bool equal_headers(const Plan& plan, const Packet& packet, const HeaderPlan& a, const HeaderPlan& b) {
  if (packet.phv[a.valid] == std::byte{0} || packet.phv[b.valid] == std::byte{0} || a.bytes != b.bytes)
    return false;
  if (std::memcmp(&packet.phv[a.image], &packet.phv[b.image], a.bytes) != 0) return false;
  if (a.variable == kNone || b.variable == kNone) return true;
  return equal_variables(packet, variable_of(plan, a), variable_of(plan, b));
}

void push(const Plan& plan, Packet& packet, const StackPlan& stack, std::uint64_t count) {
  const std::size_t size = stack.size();
  const std::size_t moved = std::min<std::uint64_t>(count, size);
  store32(packet, stack.next, std::min(load32(packet, stack.next) + moved, size));
  for (std::size_t i = size; i-- > moved;) swap_elements(plan, packet, stack, i, i - moved);
  for (std::size_t i = 0; i < moved; ++i) invalidate(plan, packet, stack, i);
}

void pop(const Plan& plan, Packet& packet, const StackPlan& stack, std::uint64_t count) {
  const std::size_t size = stack.size();
  const std::size_t moved = std::min<std::uint64_t>(count, size);
  const std::uint32_t used = load32(packet, stack.next);
  store32(packet, stack.next, used - std::min<std::uint64_t>(used, moved));
  for (std::size_t i = 0; i + moved < size; ++i) swap_elements(plan, packet, stack, i, i + moved);
  for (std::size_t i = size - moved; i < size; ++i) invalidate(plan, packet, stack, i);
}

void copy_stack(const Plan& plan, Packet& packet, const StackPlan& to, const StackPlan& from) {
  store32(packet, to.next, load32(packet, from.next));
  for (std::size_t i = 0; i < std::min(to.headers.size(), from.headers.size()); ++i) {
    copy_header(plan, packet, plan.headers[to.headers[i]], plan.headers[from.headers[i]]);
  }
}

}  // namespace railweave::engine
