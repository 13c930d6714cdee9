// SPDX-License-Identifier: Apache-2.0
// A plan: a P4 program lowered to flat arrays. It arrives as bytes, is checked once, and is then only read.
#pragma once

#include <array>
#include <cstdint>
#include <stdexcept>
#include <vector>

#include "core/bytes.hpp"
#include "engine/isa.hpp"

namespace railweave::engine {

/// The bytes are no plan: truncated, of another version, or with an operand that points outside.
struct InvalidPlan : std::runtime_error {
  using std::runtime_error::runtime_error;
};

inline constexpr std::uint32_t kPlanMagic = 0x52575031;  // "RWP1"
inline constexpr std::uint32_t kNone = 0xffffffff;       // "no such program counter, header, table"
inline constexpr std::uint32_t kGroup = kNone - 1;       // in place of an action: pick one from a group

/// A metadata field kept as a native 32- or 64-bit integer; width 0 says that the program has no such field.
struct NativeField {
  std::uint32_t offset = 0;
  std::uint32_t width = 0;
  RAILWEAVE_PLAN_FIELDS(offset, width)
};

/// Keeps the low bits of `value`; nothing in a field that the program does not have.
inline void store_native(std::byte* phv, const NativeField& to, std::uint64_t value) {
  if (to.width == 0) return;
  value &= ~0ull >> (64 - to.width);
  if (to.width <= 32) {
    store_le<std::uint32_t>(phv + to.offset, static_cast<std::uint32_t>(value));
  } else {
    store_le<std::uint64_t>(phv + to.offset, value);
  }
}

/// Metadata that the target itself reads or writes, by its name in programs, in this order in the plan.
// clang-format off
#define RAILWEAVE_INTRINSICS(X) \
  X("standard_metadata.ingress_port", kIngressPort) \
  X("standard_metadata.egress_spec", kEgressSpec) \
  X("standard_metadata.egress_port", kEgressPort) \
  X("standard_metadata.instance_type", kInstanceType) \
  X("standard_metadata.packet_length", kPacketLength) \
  X("intrinsic_metadata.mcast_grp", kMulticastGroup) \
  X("intrinsic_metadata.egress_rid", kEgressRid) \
  X("intrinsic_metadata.ingress_global_timestamp", kIngressTimestamp) \
  X("intrinsic_metadata.egress_global_timestamp", kEgressTimestamp) \
  X("queueing_metadata.enq_timestamp", kEnqueueTimestamp) \
  X("queueing_metadata.enq_qdepth", kEnqueueDepth) \
  X("queueing_metadata.deq_timedelta", kDequeueTimedelta) \
  X("queueing_metadata.deq_qdepth", kDequeueDepth) \
  X("queueing_metadata.qid", kQueueId) \
  X("standard_metadata.parser_error", kParserError) \
  X("standard_metadata.checksum_error", kChecksumError) \
  X("intrinsic_metadata.priority", kPriority)

/// Codes of the core errors in this program.
#define RAILWEAVE_CORE_ERRORS(X) \
  X("NoError", kNoError) X("PacketTooShort", kPacketTooShort) X("StackOutOfBounds", kStackOutOfBounds) \
  X("HeaderTooShort", kHeaderTooShort) X("ParserInvalidArgument", kParserInvalidArgument)
// clang-format on

#define X(name, enumerator) enumerator,
enum class Intrinsic : std::uint32_t { RAILWEAVE_INTRINSICS(X) kCount };
enum class CoreError : std::uint32_t { RAILWEAVE_CORE_ERRORS(X) kCount };
#undef X

struct HeaderPlan {
  std::uint32_t image;  // offset of the header's bytes, as in the packet
  std::uint32_t bytes;
  std::uint32_t valid;     // offset of a byte, 0 or 1
  std::uint32_t variable;  // its variable-length field, or kNone: `bytes` are then without it,
  std::uint32_t split;     // and it stands behind this many bits
  static constexpr std::uint32_t kMostRoom = 64;
  std::uint32_t room = 0;  // bytes that may be written at `image` without harm to other headers
  RAILWEAVE_PLAN_FIELDS(image, bytes, valid, variable, split)
};

/// A variable-length field: a native 32-bit length in bytes, then room for `bytes`.
struct VariablePlan {
  static constexpr std::uint32_t kLengthBytes = 4;
  std::uint32_t offset;
  std::uint32_t bytes;
  RAILWEAVE_PLAN_FIELDS(offset, bytes)
};

/// A stack of headers or of header unions; an element has `width` headers, of which at most one is valid.
struct StackPlan {
  std::uint32_t next;  // offset of a native 32-bit count of the elements extracted
  std::uint32_t width;
  std::uint32_t of_unions;  // 1 or 0
  std::vector<std::uint32_t> headers;
  RAILWEAVE_PLAN_FIELDS(next, width, of_unions, headers)

  std::size_t size() const { return headers.size() / width; }
};

/// Register arrays with the same indexes lie side by side: row = index, column = array.
struct BankPlan {
  std::uint32_t rows;
  std::uint32_t words;  // 32-bit words per row
  bool operator==(const BankPlan&) const = default;
  RAILWEAVE_PLAN_FIELDS(rows, words)
};

struct RegisterPlan {
  std::uint32_t bank;
  std::uint32_t word;  // of the first 32-bit word in the row
  std::uint32_t size;
  std::uint32_t width;  // bits; 33..64 take two words, more take one per 32 bits
  bool operator==(const RegisterPlan&) const = default;
  RAILWEAVE_PLAN_FIELDS(bank, word, size, width)
};

/// Cells of registers side by side as a vector.
struct SlicePlan {
  std::uint32_t bank;
  std::uint32_t word;
  std::uint32_t length;  // as of instructions (vectors.hpp)
  std::uint32_t bytes;   // of a cell: 4 or 8
  RAILWEAVE_PLAN_FIELDS(bank, word, length, bytes)
};

struct MeterPlan {
  std::uint32_t size;
  std::uint32_t rates;
  std::uint32_t bytes;  // 1: counts bytes, 0: packets
  bool operator==(const MeterPlan&) const = default;
  RAILWEAVE_PLAN_FIELDS(size, rates, bytes)
};

/// Bits of the PHV, most significant first; of a native field its whole bytes.
struct BitRange {
  std::uint32_t position;
  std::uint32_t bits;
  RAILWEAVE_PLAN_FIELDS(position, bits)
};

enum class MatchKind : std::uint32_t { kExact, kLpm, kTernary };
inline constexpr const char* kMatchKinds[] = {"exact", "lpm", "ternary"};

struct TablePlan {
  MatchKind kind;
  std::uint32_t words;       // of the key
  std::uint32_t size;        // greatest number of entries
  std::uint32_t hit;         // where a hit goes on; kNone: by action
  std::uint32_t miss;        // where a miss without a default action goes on, and any miss if `hit` is set
  std::uint32_t meter;       // direct meter: its index, or kNone
  NativeField meter_result;  // width 0: `meter_bits`
  BitRange meter_bits;
  std::uint32_t selector;              // calculation that picks a group's member, or kNone
  std::uint32_t timeouts;              // 1: entries may have idle time-outs
  std::vector<std::uint32_t> actions;  // entry points
  std::vector<std::uint32_t> next;     // where to go on after each
  RAILWEAVE_PLAN_FIELDS(kind, words, size, hit, miss, meter, meter_result, meter_bits, selector, timeouts,
                        actions, next)
};

/// One piece of the input of a calculation. Pieces of invalid headers are left out.
struct InputPlan {
  enum Kind : std::uint32_t { kBits, kNative, kConstant, kPayload, kVariable };
  static constexpr const char* kKinds[] = {"bits", "native", "constant", "payload", "variable"};
  Kind kind;
  std::uint32_t valid;   // offset of the header's validity, or kNone
  std::uint32_t offset;  // kBits: bit position; kNative: byte offset; kConstant: index of a wide constant;
                         // kVariable: index of a variable field
  std::uint32_t width;   // in bits; kNative: up to 64
  RAILWEAVE_PLAN_FIELDS(kind, valid, offset, width)
};

struct CalculationPlan {
  std::uint32_t algorithm;  // Algorithm in hash.hpp
  std::vector<InputPlan> inputs;
  RAILWEAVE_PLAN_FIELDS(algorithm, inputs)
};

/// The runs of a packet through the code of a plan.
enum class Stage : std::uint8_t { kParser, kIngress, kEgress, kDeparser };
inline constexpr std::size_t kStages = 4;

struct Plan {
  std::uint32_t phv_bytes = 0;
  std::uint32_t metadata_bytes = 0;  // [0, metadata_bytes): metadata; validity, stacks and headers follow
  std::uint32_t registers = 0, wides = 0, limbs = 0, vectors = 0, vector_length = 0;
  std::uint32_t key_words = 0, parameter_words = 0;
  std::uint32_t parser = 0, parsed = 0, ingress = 0, egress = 0, deparser = 0;  // entry points
  std::array<NativeField, static_cast<std::size_t>(Intrinsic::kCount)> intrinsics{};
  std::array<std::uint32_t, static_cast<std::size_t>(CoreError::kCount)> errors{};
  std::vector<std::uint64_t> constants;  // preset registers 0, 1, …
  std::vector<std::vector<std::uint64_t>> wide_constants;
  std::vector<HeaderPlan> headers;
  std::vector<VariablePlan> variables;
  std::vector<StackPlan> stacks;
  std::vector<std::uint32_t> order;  // of the deparser
  std::vector<BankPlan> banks;
  std::vector<RegisterPlan> arrays;
  std::vector<SlicePlan> slices;
  std::vector<std::uint32_t> counters;  // sizes
  std::vector<MeterPlan> meters;
  std::vector<TablePlan> tables;
  std::vector<CalculationPlan> calculations;
  std::vector<std::vector<BitRange>> field_lists;   // kept across resubmission, recirculation, cloning
  std::vector<std::vector<InputPlan>> learn_lists;  // of digests, every field padded to bytes
  std::vector<Instruction> code;
  // The last header in the PHV, if only vector instructions use it, and only as a whole. Such a header need
  // not be copied into the PHV (Packet::body). kNone: no such header.
  std::uint32_t large = kNone;
  std::uint32_t large_at = kNone;  // where it is
  RAILWEAVE_PLAN_FIELDS(phv_bytes, metadata_bytes, registers, wides, limbs, vectors, vector_length, key_words,
                        parameter_words, parser, parsed, ingress, egress, deparser, intrinsics, errors,
                        constants, wide_constants, headers, variables, stacks, order, banks, arrays, slices,
                        counters, meters, tables, calculations, field_lists, learn_lists, code)

  /// Reads and checks; throws InvalidPlan.
  static Plan parse(Bytes bytes);

  /// Where the code of a stage begins.
  std::uint32_t entry(Stage stage) const {
    const std::uint32_t entries[kStages] = {parser, ingress, egress, deparser};
    return entries[static_cast<std::size_t>(stage)];
  }
  /// Whether the program has this field, and reads it.
  bool uses(Intrinsic field) const { return intrinsics[static_cast<std::size_t>(field)].width != 0; }
  bool uses_clock() const {
    return uses(Intrinsic::kIngressTimestamp) || uses(Intrinsic::kEgressTimestamp) ||
           uses(Intrinsic::kEnqueueTimestamp) || uses(Intrinsic::kDequeueTimedelta);
  }
  bool uses_backlog() const {
    return uses(Intrinsic::kEgressTimestamp) || uses(Intrinsic::kEnqueueDepth) ||
           uses(Intrinsic::kDequeueTimedelta) || uses(Intrinsic::kDequeueDepth);
  }
};

}  // namespace railweave::engine
