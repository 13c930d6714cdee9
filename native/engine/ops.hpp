// SPDX-License-Identifier: Apache-2.0
// The instructions of a plan as functions. The interpreter runs these functions, and so does compiled code
// (translate.hpp), in which operands and plan are constants.
#pragma once

#include <algorithm>
#include <cstring>
#include <random>
#include <tuple>
#include <type_traits>
#include <vector>

#include "engine/calculation.hpp"
#include "engine/fields.hpp"
#include "engine/headers.hpp"
#include "engine/machine.hpp"
#include "engine/vectors.hpp"
#include "engine/wide.hpp"

namespace railweave::engine {

inline std::int64_t as_signed(std::uint64_t value) { return static_cast<std::int64_t>(value); }

inline std::uint64_t sign_extend(std::uint64_t value, std::uint32_t width) {
  return static_cast<std::uint64_t>(as_signed(value << (64 - width)) >> (64 - width));
}

inline std::uint64_t saturate_unsigned(std::uint64_t value, std::uint32_t width) {
  return static_cast<std::uint64_t>(
      std::clamp<std::int64_t>(as_signed(value), 0, as_signed(low_bits(width) & ~(1ull << 63))));
}

inline std::uint64_t saturate_signed(std::uint64_t value, std::uint32_t width) {
  const std::int64_t top = as_signed(low_bits(width) >> 1);
  return static_cast<std::uint64_t>(std::clamp(as_signed(value), -top - 1, top));
}

/// Runs a function of an instruction; whether it jumps.
template <typename Step>
[[gnu::always_inline]] inline bool jumps(Step&& step) {
  if constexpr (std::is_void_v<decltype(step())>) {
    step();
    return false;
  } else {
    return step();
  }
}

/// One run over one packet. `Program` has the arrays of a plan that instructions index: a Plan, or constants.
/// Functions have the names of their instructions. A function that returns true jumps to the operand that is
/// a program counter, or to the end of the parser. All functions are inlined into their caller, so that the
/// values that every instruction needs stay in registers of the processor.
template <typename Program>
struct Run {
  using I = const Instruction&;

  Machine& machine;
  const Program& program;
  Packet& packet;
  std::uint64_t* r;
  std::uint64_t* key;
  std::byte* phv = packet.phv.data();
  const std::uint64_t* parameters = nullptr;  // of the table's action
  std::uint32_t jumps = kMaxJumps;            // backwards, left
  // Constant if the program is.
  const std::size_t limbs = program.limbs;

  /// The result of a table look-up; the action is kNone where there is nothing to do.
  struct Found {
    std::uint32_t action;
    bool hit;
  };

#define INLINE [[gnu::always_inline]] inline
#define DO(name, ...) \
  INLINE void name([[maybe_unused]] I in) { __VA_ARGS__; }
#define LOAD(name, value) DO(name, r[in.d] = (value))
#define BINARY(name, expression) \
  DO(name, const std::uint64_t a = r[in.a], b = r[in.b]; r[in.d] = static_cast<std::uint64_t>(expression))
/// An expression on vectors of words of the type Word.
#define VECTOR(name, expression) DO(name, with_words(in.c, [&]<typename Word>(Word) { expression; }))
#define VECTOR_OP(name, operation) \
  VECTOR(name, vectors::operation(vector<Word>(in.d), vector<Word>(in.a), vector<Word>(in.b), length(in)))
#define JUMP_IF(name, condition) \
  INLINE bool name([[maybe_unused]] I in) { return condition; }
#define COMPARE(name, condition)                  \
  INLINE bool name(I in) {                        \
    const std::uint64_t a = r[in.d], b = r[in.a]; \
    return condition;                             \
  }

  JUMP_IF(JZ, r[in.d] == 0)
  JUMP_IF(JNZ, r[in.d] != 0)
  COMPARE(JEQ, a == b)
  COMPARE(JNE, a != b)
  COMPARE(JLTU, a < b)
  COMPARE(JLEU, a <= b)
  COMPARE(JLTS, as_signed(a) < as_signed(b))
  COMPARE(JLES, as_signed(a) <= as_signed(b))
  DO(EXIT, packet.exited = true)

  /// Does all of TABLE except the jump to the action.
  INLINE Found look_up(I in) {
    Table& table = *state().tables[in.a];
    const auto& shape = program.tables[in.a];
    Entry* hit = table.lookup(key, shape.words);
    if (hit) {
      hit->counter.packets += 1;
      hit->counter.bytes += packet.ingress_length;
      if (shape.timeouts) hit->last_hit_us = state().now_us;
      if (shape.meter != kNone) {
        const std::uint64_t color =
            state().cells.execute_meter(shape.meter, hit->slot, packet.ingress_length, state().now_us);
        if (shape.meter_bits.bits != 0) {
          wide::store_bits(&color, 1, reinterpret_cast<unsigned char*>(phv), shape.meter_bits.position,
                           shape.meter_bits.bits);
        } else {
          store_native(phv, shape.meter_result, color);
        }
      }
    }
    const Entry& entry = hit ? *hit : table.fallback();
    parameters = entry.parameters.data();
    if (entry.action < kGroup) [[likely]]
      return {entry.action, hit != nullptr};
    const Choice* choice = entry.action == kGroup ? machine.choose(table, parameters[0], packet) : nullptr;
    if (choice == nullptr) return {kNone, hit != nullptr};  // no default action, or an empty group
    parameters = choice->parameters.data();
    return {choice->action, hit != nullptr};
  }

  /// Has what is not compiled interpreted, up to the JOIN at `until`. Nothing behind it uses registers from
  /// before.
  bool interpret(std::uint32_t pc, std::uint32_t until) {
    std::copy_n(r, program.registers, machine.registers_.data());
    settle();
    return machine.interpret(packet, pc, until, parameters);
  }

  // Loads and stores.
  LOAD(MOV, r[in.a])
  LOAD(PARAM, parameters ? parameters[in.a] : 0)
  LOAD(LD_U8, static_cast<std::uint64_t>(phv[in.a]))
  LOAD(LD_BE16, load_be<std::uint16_t>(phv + in.a))
  LOAD(LD_BE32, load_be<std::uint32_t>(phv + in.a))
  LOAD(LD_BE64, load_be<std::uint64_t>(phv + in.a))
  LOAD(LD_BITS, load_field(phv, in.a, in.b))
  LOAD(LD_N32, load_le<std::uint32_t>(phv + in.a))
  LOAD(LD_N64, load_le<std::uint64_t>(phv + in.a))
  DO(ST_U8, phv[in.a] = static_cast<std::byte>(r[in.d]))
  DO(ST_BE16, store_be(phv + in.a, static_cast<std::uint16_t>(r[in.d])))
  DO(ST_BE32, store_be(phv + in.a, static_cast<std::uint32_t>(r[in.d])))
  DO(ST_BE64, store_be(phv + in.a, r[in.d]))
  DO(ST_BITS, store_field(phv, in.a, in.b, r[in.d]))
  DO(ST_N32, store_le<std::uint32_t>(phv + in.a, r[in.d]))
  DO(ST_N64, store_le<std::uint64_t>(phv + in.a, r[in.d]))

  // 64-bit arithmetic.
  BINARY(ADD, a + b)
  BINARY(SUB, a - b)
  BINARY(MUL, a* b)
  BINARY(DIV, b ? a / b : 0)
  BINARY(MOD, b ? a % b : 0)
  BINARY(AND, a& b)
  BINARY(OR, a | b)
  BINARY(XOR, a ^ b)
  BINARY(SHL, b < 64 ? a << b : 0)
  BINARY(SHR, b < 64 ? a >> b : 0)
  BINARY(SAR, as_signed(a) >> std::min<std::uint64_t>(b, 63))
  BINARY(EQ, a == b)
  BINARY(NE, a != b)
  BINARY(LTU, a < b)
  BINARY(LEU, a <= b)
  BINARY(LTS, as_signed(a) < as_signed(b))
  BINARY(LES, as_signed(a) <= as_signed(b))
  LOAD(NOT, ~r[in.a])
  LOAD(LNOT, r[in.a] == 0)
  LOAD(BOOL, r[in.a] != 0)
  LOAD(SEXT, sign_extend(r[in.a], in.b))
  LOAD(USAT, saturate_unsigned(r[in.a], in.b))
  LOAD(SSAT, saturate_signed(r[in.a], in.b))
  LOAD(SELECT, r[in.a] ? r[in.b] : r[in.c])

  // Integers of more than 64 bits.
  DO(W_LD, wide::load_bits(wide(in.d), limbs, reinterpret_cast<unsigned char*>(phv), in.a, in.b))
  DO(W_ST, wide::store_bits(wide(in.d), limbs, reinterpret_cast<unsigned char*>(phv), in.a, in.b))
  INLINE void W_PARAM(I in) {
    const std::size_t words = (in.b + 63) / 64;
    for (std::size_t i = 0; i < limbs; ++i) {
      wide(in.d)[i] = parameters && i < words ? parameters[in.a + i] : 0;
    }
  }
  INLINE void W_CONST(I in) {
    const auto& constant = plan().wide_constants[in.a];
    const bool sign = wide::negative(constant.data(), constant.size());
    for (std::size_t i = 0; i < limbs; ++i) {
      wide(in.d)[i] = i < constant.size() ? constant[i] : sign ? ~0ull : 0;
    }
  }
  DO(W_FROM_U, wide::set(wide(in.d), limbs, r[in.a], false))
  DO(W_FROM_S, wide::set(wide(in.d), limbs, r[in.a], as_signed(r[in.a]) < 0))
  LOAD(W_TO, wide(in.a)[0])
  DO(W_ADD, wide::add(wide(in.d), wide(in.a), wide(in.b), limbs, false))
  DO(W_SUB, wide::add(wide(in.d), wide(in.a), wide(in.b), limbs, true))
  DO(W_MUL, wide::multiply(wide(in.d), wide(in.a), wide(in.b), limbs))
  DO(W_AND, for (std::size_t i = 0; i < limbs; ++i) wide(in.d)[i] = wide(in.a)[i] & wide(in.b)[i])
  DO(W_OR, for (std::size_t i = 0; i < limbs; ++i) wide(in.d)[i] = wide(in.a)[i] | wide(in.b)[i])
  DO(W_XOR, for (std::size_t i = 0; i < limbs; ++i) wide(in.d)[i] = wide(in.a)[i] ^ wide(in.b)[i])
  DO(W_NOT, for (std::size_t i = 0; i < limbs; ++i) wide(in.d)[i] = ~wide(in.a)[i])
  DO(W_SHL, wide::shift_left(wide(in.d), wide(in.a), std::min<std::uint64_t>(r[in.b], 64 * limbs), limbs))
  DO(W_SHR, wide::shift_right(wide(in.d), wide(in.a), std::min<std::uint64_t>(r[in.b], 64 * limbs), limbs))
  DO(W_ZEXT, wide::extend(wide(in.d), wide(in.a), in.b, false, limbs))
  DO(W_SEXT, wide::extend(wide(in.d), wide(in.a), in.b, true, limbs))
  DO(W_USAT, wide::saturate(wide(in.d), wide(in.a), std::max(in.b, 1u), false, limbs))
  DO(W_SSAT, wide::saturate(wide(in.d), wide(in.a), std::max(in.b, 1u), true, limbs))
  LOAD(W_EQ, wide::compare(wide(in.a), wide(in.b), limbs) == 0)
  LOAD(W_LT, wide::compare(wide(in.a), wide(in.b), limbs) < 0)
  LOAD(W_BOOL, !wide::is_zero(wide(in.a), limbs))
  DO(W_SELECT, std::memmove(wide(in.d), r[in.a] ? wide(in.b) : wide(in.c), 8 * limbs))
  DO(W_DIV, wide::divide(wide(in.d), machine.spare(), wide(in.a), wide(in.b), limbs))
  DO(W_MOD, wide::divide(machine.spare(), wide(in.d), wide(in.a), wide(in.b), limbs))
  INLINE bool W_REG_RD(I in) {
    const std::uint32_t* cell = register_cell(in);
    if (cell == nullptr) return true;
    const std::size_t words = words_of(program.arrays[in.a]);
    for (std::size_t i = 0; i < limbs; ++i) {
      const std::uint64_t low = 2 * i < words ? cell[2 * i] : 0;
      wide(in.d)[i] = low | (2 * i + 1 < words ? std::uint64_t{cell[2 * i + 1]} << 32 : 0);
    }
    return false;
  }
  INLINE void W_REG_WR(I in) {
    std::uint32_t* cell = register_cell(in);
    if (cell == nullptr) return;
    const RegisterPlan& array = program.arrays[in.a];
    wide::extend(wide(in.d), wide(in.d), array.width, false, limbs);
    for (std::size_t i = 0; i < words_of(array); ++i) {
      cell[i] = i / 2 < limbs ? static_cast<std::uint32_t>(wide(in.d)[i / 2] >> (32 * (i % 2))) : 0;
    }
  }

  // Vectors.
  template <typename Word>
  INLINE Word* vector(std::uint32_t number) const {
    return std::get<std::vector<Word>>(machine.vectors_).data() + number * std::size_t{program.vector_length};
  }
  INLINE static std::size_t length(I in) { return vectors::count(in.c); }
  template <typename Step>
  INLINE static void with_words(std::uint32_t length, const Step& step) {
    if (vectors::has_long_words(length)) {
      step(std::uint64_t{});
    } else {
      step(std::uint32_t{});
    }
  }
  /// Words of a header, to read.
  INLINE const std::byte* words(std::uint32_t at) const {
    return at >= program.large_at && packet.body ? packet.body + (at - program.large_at) : phv + at;
  }
  /// Words of a header that are all written.
  INLINE std::byte* room(std::uint32_t at) const {
    if (at >= program.large_at) packet.body = nullptr;
    return phv + at;
  }
  /// The large header is in the PHV from now on.
  INLINE void settle() const {
    if (packet.body == nullptr) return;
    std::memcpy(phv + program.large_at, packet.body, plan().headers[program.large].bytes);
    packet.body = nullptr;
  }
  VECTOR(V_LD_BE, vectors::load_be(vector<Word>(in.d), words(in.a), in.b, length(in)))
  VECTOR(V_ST_BE, vectors::store_be(room(in.a), vector<Word>(in.d), in.b, length(in)))
  VECTOR(V_LD_N, vectors::load_le(vector<Word>(in.d), phv + in.a, in.b, length(in)))
  VECTOR(V_ST_N, vectors::store_le(phv + in.a, vector<Word>(in.d), in.b, length(in)))
  VECTOR(V_BCAST, vectors::broadcast(vector<Word>(in.d), static_cast<Word>(r[in.a]), length(in)))
  INLINE bool V_LD_REG(I in) {
    const std::byte* from = cells(in);
    if (from == nullptr) return true;
    const SlicePlan& slice = program.slices[in.a];
    with_words(slice.length, [&]<typename Word>(Word) {
      vectors::load_le(vector<Word>(in.d), from, slice.bytes, vectors::count(slice.length));
    });
    return false;
  }
  INLINE void V_ST_REG(I in) {
    std::byte* to = cells(in);
    if (to == nullptr) return;
    const SlicePlan& slice = program.slices[in.a];
    with_words(slice.length, [&]<typename Word>(Word) {
      vectors::store_le(to, vector<Word>(in.d), slice.bytes, vectors::count(slice.length));
    });
  }
  /// The cells of a slice in the row that the instruction names; nullptr: there is no such row.
  INLINE std::byte* cells(I in) const {
    const SlicePlan& slice = program.slices[in.a];
    const BankPlan& bank = program.banks[slice.bank];
    const std::uint32_t row = static_cast<std::uint32_t>(r[in.b]);
    if (row >= bank.rows) return nullptr;
    state().cells.expect(slice.bank, bank, row);
    return reinterpret_cast<std::byte*>(state().cells.bank(slice.bank, row) + slice.word);
  }
  VECTOR(V_MOV, std::memmove(vector<Word>(in.d), vector<Word>(in.a), sizeof(Word) * length(in)))
  RAILWEAVE_VECTOR_OPS(VECTOR_OP)
  VECTOR_OP(V_SELECT, select)
  VECTOR(V_NOT, vectors::invert(vector<Word>(in.d), vector<Word>(in.a), length(in)))
#define SHIFT(name, operation)                                                                           \
  VECTOR(name, vectors::operation(vector<Word>(in.d), vector<Word>(in.a), in.b & (8 * sizeof(Word) - 1), \
                                  length(in)))
  SHIFT(V_SHL, shift_left)
  SHIFT(V_SHR, shift_right)
  SHIFT(V_SAR, shift_right_signed)

  // Headers.
  INLINE void HDR_ADD(I in) {
    const HeaderPlan& header = program.headers[in.a];
    if (header.variable != kNone) return add_header(plan(), packet, header);
    if (phv[header.valid] != std::byte{0}) return;
    if (in.a == program.large) {
      packet.body = machine.zeros();
    } else {
      clear_image(phv + header.image, header);
    }
    phv[header.valid] = std::byte{1};
    packet.length += header.bytes;
  }
  INLINE void HDR_REMOVE(I in) {
    const HeaderPlan& header = program.headers[in.a];
    if (phv[header.valid] == std::byte{0}) return;
    phv[header.valid] = std::byte{0};
    packet.length -= header_size(plan(), packet, header);
  }
  /// Invalid, because another header of its union is valid now; the length stays, as in BMv2.
  DO(HDR_HIDE, phv[program.headers[in.a].valid] = std::byte{0})
  DO(HDR_COPY, copy_header(plan(), packet, program.headers[in.a], program.headers[in.b]))
  LOAD(HDR_EQ, equal_headers(plan(), packet, program.headers[in.a], program.headers[in.b]))
  DO(STACK_PUSH, push(plan(), packet, plan().stacks[in.a], r[in.b]))
  DO(STACK_POP, pop(plan(), packet, plan().stacks[in.a], r[in.b]))
  DO(STACK_COPY, copy_stack(plan(), packet, plan().stacks[in.a], plan().stacks[in.b]))
  DO(VL_COPY, copy_variable(packet, plan().variables[in.a], plan().variables[in.b]))
  INLINE void W_LD_VL(I in) {
    const VariablePlan& variable = plan().variables[in.a];
    const std::uint64_t bits = 8ull * variable_length(packet, variable);
    wide::load_bits(wide(in.d), limbs, variable_bytes(packet, variable), 0, bits);
  }

  // The parser.
  INLINE bool EXTRACT(I in) {
    const HeaderPlan& header = program.headers[in.a];
    if (in.a != program.large) return !extract(header) && fail(CoreError::kPacketTooShort);
    if (left() < header.bytes) return fail(CoreError::kPacketTooShort);
    packet.body = packet.bytes.data() + packet.cursor;
    phv[header.valid] = std::byte{1};
    packet.cursor += header.bytes;
    return false;
  }
  JUMP_IF(EXTRACT_VL, fail(extract_variable(plan(), packet, program.headers[in.a], r[in.b])))
  JUMP_IF(EXTRACT_NEXT, extract_next(in, false))
  JUMP_IF(EXTRACT_NEXT_VL, extract_next(in, true))
  INLINE bool ADVANCE(I in) {
    const std::uint64_t bits = r[in.a];
    if (bits % 8) return fail(CoreError::kParserInvalidArgument);
    if (left() < bits / 8) return fail(CoreError::kPacketTooShort);
    packet.cursor += bits / 8;
    return false;
  }
  INLINE bool LOOKAHEAD(I in) {
    if (left() < (std::uint64_t{in.a} + in.b + 7) / 8) return fail(CoreError::kPacketTooShort);
    wide::Limb value;
    wide::load_bits(&value, 1, ahead(), in.a, in.b);
    r[in.d] = value;
    return false;
  }
  INLINE bool W_LOOKAHEAD(I in) {
    if (left() < (std::uint64_t{in.a} + in.b + 7) / 8) return fail(CoreError::kPacketTooShort);
    wide::load_bits(wide(in.d), limbs, ahead(), in.a, in.b);
    return false;
  }
  INLINE bool PARSE_ERROR(I in) {
    packet.error = r[in.a];
    return true;
  }
  LOAD(MEMBER, state().tables[in.a]->lookup(key) != nullptr)  // whether a value set has the key

  // Messages.
  // The values of a message without listener or room are not computed.
  JUMP_IF(LOGGING, !state().messages.enabled || !state().messages.admit(state().now_us))
  INLINE void LOG_VALUE(I in) {  // a: whether it is signed
    const std::uint64_t value = r[in.d];
    state().messages.values.push_back({{value}, in.a != 0 && as_signed(value) < 0});
  }
  INLINE void W_LOG_VALUE(I in) {
    const std::uint64_t* const value = wide(in.d);
    state().messages.values.push_back({{value, value + limbs}, wide::negative(value, limbs)});
  }
  DO(LOG, state().messages.add(in.a, state().now_us))
  DO(NOTE, machine.note(in.a))
  DO(NOTE_TABLE, machine.note_lookup(in.a, packet, key))
  /// Whether it holds.
  INLINE bool holds(I in) {
    if (r[in.d] != 0) return true;
    state().messages.values.clear();
    if (state().messages.admit(state().now_us)) state().messages.add(in.a, state().now_us);
    return false;
  }

  // Keys of tables.
  DO(KEY_SET, key[in.a] = r[in.d] << (in.b - 1))
  DO(KEY, key[in.a] |= r[in.d] << (in.b - 1))
  INLINE void W_KEY(I in) {
    for (std::size_t i = 0; i < (in.b + 63ull) / 64 && in.a + i < program.key_words; ++i) {
      key[in.a + i] = i < limbs ? wide(in.d)[i] : 0;
    }
  }

  // Externs.
  INLINE bool REG_RD(I in) {
    const std::uint32_t* cell = register_cell(in);
    if (cell == nullptr) return true;
    r[in.d] = program.arrays[in.a].width <= 32 ? cell[0] : cell[0] | std::uint64_t{cell[1]} << 32;
    return false;
  }
  INLINE void REG_WR(I in) {
    std::uint32_t* cell = register_cell(in);
    if (cell == nullptr) return;
    const std::uint32_t width = program.arrays[in.a].width;
    const std::uint64_t value = width < 64 ? r[in.d] & low_bits(width) : r[in.d];
    cell[0] = static_cast<std::uint32_t>(value);
    if (width > 32) cell[1] = static_cast<std::uint32_t>(value >> 32);
  }
  INLINE void COUNT(I in) {
    auto& cells = state().cells.counters[in.a];
    const std::uint32_t index = static_cast<std::uint32_t>(r[in.b]);
    if (index >= cells.size()) return;
    cells[index].packets += 1;
    cells[index].bytes += packet.ingress_length;
  }
  INLINE bool METER(I in) {
    const std::uint32_t index = static_cast<std::uint32_t>(r[in.b]);
    if (index >= state().cells.meters[in.a].size()) return true;
    r[in.d] = state().cells.execute_meter(in.a, index, packet.ingress_length, state().now_us);
    return false;
  }
  INLINE bool RANDOM(I in) {
    const std::uint64_t low = r[in.a], high = r[in.b];
    if (low > high) return true;  // BMv2 leaves the field as it is
    r[in.d] = std::uniform_int_distribution<std::uint64_t>(low, high)(state().random);
    return false;
  }
  INLINE void HASH(I in) {
    const std::uint64_t size = r[in.c], base = r[in.b];
    r[in.d] = checksum(in) % (size ? size : 1) + base;
  }
  LOAD(CHECKSUM, checksum(in))
  DO(DIGEST, packet.learn_list = r[in.a] & 0xffff)
  INLINE void CLONE(I in) {
    packet.clone_session = (r[in.a] & 0xffff) | kCloneRequested;
    packet.clone_fields = r[in.b] & 0xffff;
  }
  DO(RESUBMIT, packet.resubmit_fields = r[in.a] & 0xffff)
  DO(RECIRCULATE, packet.recirculate_fields = r[in.a] & 0xffff)
  DO(TRUNCATE, packet.truncate = std::min<std::size_t>(packet.truncate, r[in.a]))

 private:
  INLINE const Plan& plan() const { return machine.plan(); }
  INLINE State& state() const { return machine.state_; }
  INLINE std::uint64_t* wide(std::uint32_t number) const { return machine.wides_.data() + number * limbs; }
  /// The cell of a register array at the index that the instruction names; nullptr: there is no such cell.
  INLINE std::uint32_t* register_cell(I in) const {
    const RegisterPlan& array = program.arrays[in.a];
    const std::uint32_t index = static_cast<std::uint32_t>(r[in.b]);
    return index < array.size ? state().cells.cell(array, index) : nullptr;
  }
  static constexpr std::size_t words_of(const RegisterPlan& array) {
    return array.width <= 32 ? 1 : (array.width + 63) / 64 * 2;
  }
  INLINE std::size_t left() const { return packet.bytes.size() - packet.cursor; }
  INLINE const unsigned char* ahead() const {
    return reinterpret_cast<const unsigned char*>(packet.bytes.data() + packet.cursor);
  }
  INLINE std::uint64_t checksum(I in) const {
    const auto& calculation = program.calculations[in.a];
    if (static_cast<Algorithm>(calculation.algorithm) == Algorithm::csum16) {
      if (const auto checksum = checksum_in_place(calculation.inputs, packet)) return *checksum;
    }
    return calculate(plan(), static_cast<Algorithm>(calculation.algorithm), calculation.inputs, packet,
                     machine.input_);
  }

  INLINE bool fail(CoreError error) const {
    if (error == CoreError::kNoError) return false;
    packet.error = plan().errors[static_cast<std::size_t>(error)];
    return true;
  }

  INLINE bool extract(const HeaderPlan& header) const {
    const std::size_t there = left();
    if (there < header.bytes) return false;
    copy_image(phv + header.image, packet.bytes.data() + packet.cursor, header, there);
    phv[header.valid] = std::byte{1};
    packet.cursor += header.bytes;
    return true;
  }

  /// Into member b of the next element; d: bits of the variable field.
  INLINE bool extract_next(I in, bool variable) const {
    const StackPlan& stack = plan().stacks[in.a];
    const std::uint32_t next = load_le<std::uint32_t>(phv + stack.next);
    if (next >= stack.size()) return fail(CoreError::kStackOutOfBounds);
    const std::uint32_t* const element = &stack.headers[std::size_t{next} * stack.width];
    const HeaderPlan& header = plan().headers[element[in.b]];
    const CoreError error = variable          ? extract_variable(plan(), packet, header, r[in.d])
                            : extract(header) ? CoreError::kNoError
                                              : CoreError::kPacketTooShort;
    if (fail(error)) return true;
    for (std::uint32_t i = 0; i < stack.width; ++i) {
      if (i != in.b) phv[plan().headers[element[i]].valid] = std::byte{0};
    }
    store_le<std::uint32_t>(phv + stack.next, next + 1);
    return false;
  }

#undef INLINE
#undef DO
#undef LOAD
#undef BINARY
#undef VECTOR
#undef VECTOR_OP
#undef SHIFT
#undef JUMP_IF
#undef COMPARE
};

}  // namespace railweave::engine
