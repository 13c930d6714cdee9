// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cstring>

#include "engine/calculation.hpp"
#include "engine/headers.hpp"
#include "engine/machine.hpp"
#include "engine/vectors.hpp"
#include "engine/wide.hpp"

namespace railweave::engine {
namespace {

std::uint64_t low_bits(std::uint64_t width) { return ~0ull >> (64 - width); }

std::int64_t as_signed(std::uint64_t value) { return static_cast<std::int64_t>(value); }

std::uint64_t sign_extend(std::uint64_t value, std::uint32_t width) {
  return static_cast<std::uint64_t>(as_signed(value << (64 - width)) >> (64 - width));
}

std::uint64_t saturate_unsigned(std::uint64_t value, std::uint32_t width) {
  return static_cast<std::uint64_t>(
      std::clamp<std::int64_t>(as_signed(value), 0, as_signed(low_bits(width) & ~(1ull << 63))));
}

std::uint64_t saturate_signed(std::uint64_t value, std::uint32_t width) {
  const std::int64_t top = as_signed(low_bits(width) >> 1);
  return static_cast<std::uint64_t>(std::clamp(as_signed(value), -top - 1, top));
}

bool extract_fixed(Packet& packet, const HeaderPlan& header) {
  const std::size_t left = packet.bytes.size() - packet.cursor;
  if (left < header.bytes) return false;
  const std::byte* from = packet.bytes.data() + packet.cursor;
  std::byte* to = &packet.phv[header.image];
  if (header.room != 0 && left >= header.room) {
    for (std::uint32_t i = 0; i < header.room; i += 16) std::memcpy(to + i, from + i, 16);
  } else {
    std::memcpy(to, from, header.bytes);
  }
  packet.byte(header.valid) = 1;
  packet.cursor += header.bytes;
  return true;
}

}  // namespace

// One function on purpose: what every instruction needs shall stay in registers of the processor, or at least
// in the first-level cache. Everything that is more than a few lines is called.
bool Machine::run(Packet& packet, std::uint32_t pc) {
  const Plan& plan = plan_;
  const Instruction* const code = code_.data();
  std::uint64_t* const r = registers_.data();
  std::byte* const phv = packet.phv.data();
  std::uint64_t* const key = key_.data();
  const std::size_t limbs = plan.limbs;
  frame_ = {nullptr, code, kMaxJumps};
  auto& [parameters, back, jumps] = frame_;

  const auto wide = [this](std::uint32_t number) {
    return wides_.data() + number * std::size_t{plan_.limbs};
  };
  const auto vector = [this](std::uint32_t number) {
    return vectors_.data() + number * std::size_t{plan_.vector_length};
  };
  const auto fail = [this, &packet](CoreError error) {
    packet.error = plan_.errors[static_cast<std::size_t>(error)];
  };
  const auto extract = [&packet](const HeaderPlan& header) { return extract_fixed(packet, header); };

#define DO(name, ...) \
  OP(name) {          \
    __VA_ARGS__;      \
    NEXT;             \
  }
#define LOAD(name, value) DO(name, r[in->d] = (value))
#define BINARY(name, expression) \
  DO(name, const std::uint64_t a = r[in->a], b = r[in->b]; r[in->d] = static_cast<std::uint64_t>(expression))
#define VECTOR(name, operation) \
  DO(name, vectors::operation(vector(in->d), vector(in->a), vector(in->b), in->c))
#define COMPARE(name, condition) \
  DO(name, const std::uint64_t a = r[in->d], b = r[in->a]; if (condition) JUMP(in->b))
// Instructions that machine.cpp found side by side: the second still stands behind the first.
#define FUSED(name, first, second) DO(name, first; ++in; second)
// The second uses what the first has loaded, without a way through memory.
#define FUSED_LOAD(name, value, second) FUSED(name, const std::uint64_t a = r[in->d] = (value), second)
// `in` is left one short of the target, for NEXT to step over.
#define GO(where)                               \
  do {                                          \
    const Instruction* const to = (where);      \
    if (to <= in && --jumps == 0) return false; \
    in = to - 1;                                \
  } while (false)
#define JUMP(target) GO(code + (target))
// Threaded code: every operation jumps to the next one itself, which saves the way back to a common loop.
#define OP(name) op_##name:
#define NEXT                                         \
  do {                                               \
    ++in;                                            \
    goto* kLabels[static_cast<std::size_t>(in->op)]; \
  } while (false)

  static const void* const kLabels[] = {
#define X(name, signature) &&op_##name,
      RAILWEAVE_ENGINE_OPS(X)
#undef X
          nullptr,  // kCount
#define X(name) &&op_##name,
      RAILWEAVE_ENGINE_FUSED(X)
#undef X
  };
  const Instruction* in = code + pc - 1;

  NEXT;
  OP(END) { return true; }
  OP(RET) {
    if (packet.exited) return true;
    GO(back);
    NEXT;
  }
  DO(JMP, JUMP(in->a))
  DO(JZ, if (r[in->d] == 0) JUMP(in->a))
  DO(JNZ, if (r[in->d] != 0) JUMP(in->a))
  COMPARE(JEQ, a == b)
  COMPARE(JNE, a != b)
  COMPARE(JLTU, a < b)
  COMPARE(JLEU, a <= b)
  COMPARE(JLTS, as_signed(a) < as_signed(b))
  COMPARE(JLES, as_signed(a) <= as_signed(b))
  OP(CALL) {
    back = in + 1;
    JUMP(in->a);
    NEXT;
  }
  DO(EXIT, packet.exited = true)
  OP(TABLE) {
    Table& table = *state_.tables[in->a];
    const TablePlan& shape = plan.tables[in->a];
    Entry* hit = table.lookup(key);
    if (hit) {
      hit->counter.packets += 1;
      hit->counter.bytes += packet.ingress_length;
      if (shape.timeouts) hit->last_hit_us = state_.now_us;
      if (shape.meter != kNone) {
        const auto color =
            state_.cells.execute_meter(shape.meter, hit->slot, packet.ingress_length, state_.now_us);
        store_le<std::uint32_t>(phv + shape.meter_result.offset, color & low_bits(shape.meter_result.width));
      }
    }
    const Entry& entry = hit ? *hit : table.fallback();
    std::uint32_t action = entry.action;
    parameters = entry.parameters.data();
    if (action >= kGroup) [[unlikely]] {
      const Choice* choice = action == kGroup ? choose(table, parameters[0], packet) : nullptr;
      if (choice == nullptr) {  // no default action, or an empty group
        JUMP(hit && shape.hit != kNone ? shape.hit : shape.miss);
        NEXT;
      }
      action = choice->action;
      parameters = choice->parameters.data();
    }
    back = code + (shape.hit == kNone ? shape.next[action] : hit ? shape.hit : shape.miss);
    JUMP(shape.actions[action]);
    NEXT;
  }

#define PARAMETER(i) (parameters ? parameters[i] : 0)
#define BITS(i, x) ((load_be<std::uint64_t>(phv + (i)) >> ((x) & 0xff)) & low_bits((x) >> 8))
  LOAD(MOV, r[in->a])
  LOAD(PARAM, PARAMETER(in->a))
  LOAD(LD_U8, static_cast<std::uint64_t>(phv[in->a]))
  LOAD(LD_BE16, load_be<std::uint16_t>(phv + in->a))
  LOAD(LD_BE32, load_be<std::uint32_t>(phv + in->a))
  LOAD(LD_BE64, load_be<std::uint64_t>(phv + in->a))
  LOAD(LD_BITS, BITS(in->a, in->b))
  LOAD(LD_N32, load_le<std::uint32_t>(phv + in->a))
  LOAD(LD_N64, load_le<std::uint64_t>(phv + in->a))
  DO(ST_U8, phv[in->a] = static_cast<std::byte>(r[in->d]))
  DO(ST_BE16, store_be(phv + in->a, static_cast<std::uint16_t>(r[in->d])))
  DO(ST_BE32, store_be(phv + in->a, static_cast<std::uint32_t>(r[in->d])))
  DO(ST_BE64, store_be(phv + in->a, r[in->d]))
  OP(ST_BITS) {
    const std::uint64_t mask = low_bits(in->b >> 8) << (in->b & 0xff);
    const std::uint64_t old = load_be<std::uint64_t>(phv + in->a);
    store_be(phv + in->a, (old & ~mask) | ((r[in->d] << (in->b & 0xff)) & mask));
    NEXT;
  }
  DO(ST_N32, store_le<std::uint32_t>(phv + in->a, r[in->d]))
  DO(ST_N64, store_le<std::uint64_t>(phv + in->a, r[in->d]))
  BINARY(ADD, a + b)
  BINARY(SUB, a - b)
  BINARY(MUL, a * b)
  BINARY(DIV, b ? a / b : 0)
  BINARY(MOD, b ? a % b : 0)
  BINARY(AND, a & b)
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
  LOAD(NOT, ~r[in->a])
  LOAD(LNOT, r[in->a] == 0)
  LOAD(BOOL, r[in->a] != 0)
  LOAD(SEXT, sign_extend(r[in->a], in->b))
  LOAD(USAT, saturate_unsigned(r[in->a], in->b))
  LOAD(SSAT, saturate_signed(r[in->a], in->b))
  LOAD(SELECT, r[in->a] ? r[in->b] : r[in->c])
#include "engine/ops_wide.inc"  // integers of more than 64 bits
  DO(V_LD_BE, vectors::load_be(vector(in->d), phv + in->a, in->c))
  DO(V_ST_BE, vectors::store_be(phv + in->a, vector(in->d), in->c))
  DO(V_LD_N, std::memcpy(vector(in->d), phv + in->a, 4 * std::size_t{in->c}))
  DO(V_ST_N, std::memcpy(phv + in->a, vector(in->d), 4 * std::size_t{in->c}))
  DO(V_BCAST, vectors::broadcast(vector(in->d), static_cast<std::uint32_t>(r[in->a]), in->c))
  OP(V_LD_REG) OP(V_ST_REG) {
    const SlicePlan& slice = plan.slices[in->a];
    const BankPlan& bank = plan.banks[slice.bank];
    const std::uint32_t row = static_cast<std::uint32_t>(r[in->b]);
    if (row >= bank.rows) {
      if (in->op == Op::V_LD_REG) JUMP(in->c);
      NEXT;
    }
    std::uint32_t* cells = state_.cells.bank(slice.bank, row) + slice.word;
    if (in->op == Op::V_LD_REG) {
      std::memcpy(vector(in->d), cells, 4 * std::size_t{slice.length});
    } else {
      std::memcpy(cells, vector(in->d), 4 * std::size_t{slice.length});
      state_.cells.wrote(slice.bank, row);
    }
    NEXT;
  }
  DO(V_MOV, std::memmove(vector(in->d), vector(in->a), 4 * std::size_t{in->c}))
  VECTOR(V_ADD, add)
  VECTOR(V_SUB, sub)
  VECTOR(V_MUL, mul)
  VECTOR(V_AND, bit_and)
  VECTOR(V_OR, bit_or)
  VECTOR(V_XOR, bit_xor)
  VECTOR(V_EQ, equal)
  VECTOR(V_LTU, less_unsigned)
  VECTOR(V_LTS, less_signed)
  VECTOR(V_MINU, min_unsigned)
  VECTOR(V_MAXU, max_unsigned)
  VECTOR(V_MINS, min_signed)
  VECTOR(V_MAXS, max_signed)
  VECTOR(V_ADDUS, add_sat_unsigned)
  VECTOR(V_SUBUS, sub_sat_unsigned)
  VECTOR(V_ADDSS, add_sat_signed)
  VECTOR(V_SUBSS, sub_sat_signed)
  DO(V_NOT, vectors::invert(vector(in->d), vector(in->a), in->c))
  DO(V_SHL, vectors::shift_left(vector(in->d), vector(in->a), in->b & 31, in->c))
  DO(V_SHR, vectors::shift_right(vector(in->d), vector(in->a), in->b & 31, in->c))
  DO(V_SAR, vectors::shift_right_signed(vector(in->d), vector(in->a), in->b & 31, in->c))
  DO(V_SELECT, vectors::select(vector(in->d), vector(in->a), vector(in->b), in->c))
  LOAD(V_LAST, in->c ? vector(in->a)[in->c - 1] : 0)
#include "engine/ops_headers.inc"   // headers and the parser
#include "engine/ops_messages.inc"  // messages and assertions
  FUSED_LOAD(LD_N32_JZ, load_le<std::uint32_t>(phv + in->a), if (a == 0) JUMP(in->a))
  FUSED_LOAD(LD_N32_JEQ, load_le<std::uint32_t>(phv + in->a), if (a == r[in->a]) JUMP(in->b))
  FUSED_LOAD(LD_N32_JNE, load_le<std::uint32_t>(phv + in->a), if (a != r[in->a]) JUMP(in->b))
  FUSED_LOAD(LD_U8_JZ, static_cast<std::uint64_t>(phv[in->a]), if (a == 0) JUMP(in->a))
  FUSED_LOAD(LD_U8_JEQ, static_cast<std::uint64_t>(phv[in->a]), if (a == r[in->a]) JUMP(in->b))
  FUSED_LOAD(LD_BE16_JEQ, load_be<std::uint16_t>(phv + in->a), if (a == r[in->a]) JUMP(in->b))
  FUSED_LOAD(LD_BE16_JNE, load_be<std::uint16_t>(phv + in->a), if (a != r[in->a]) JUMP(in->b))
  FUSED_LOAD(LD_BITS_JEQ, BITS(in->a, in->b), if (a == r[in->a]) JUMP(in->b))
  FUSED_LOAD(LD_BITS_JNE, BITS(in->a, in->b), if (a != r[in->a]) JUMP(in->b))
  FUSED_LOAD(LD_N32_KEY_SET, load_le<std::uint32_t>(phv + in->a), key[in->a] = a << (in->b - 1))
  FUSED_LOAD(LD_N32_KEY, load_le<std::uint32_t>(phv + in->a), key[in->a] |= a << (in->b - 1))
  FUSED_LOAD(LD_N32_ST_N32, load_le<std::uint32_t>(phv + in->a), store_le<std::uint32_t>(phv + in->a, a))
  FUSED(LD_N32_LD_N32, r[in->d] = load_le<std::uint32_t>(phv + in->a),
        r[in->d] = load_le<std::uint32_t>(phv + in->a))
  FUSED(ST_N32_ST_N32, store_le<std::uint32_t>(phv + in->a, r[in->d]),
        store_le<std::uint32_t>(phv + in->a, r[in->d]))
  FUSED(ST_N32_JMP, store_le<std::uint32_t>(phv + in->a, r[in->d]), JUMP(in->a))
  FUSED(PARAM_PARAM, r[in->d] = PARAMETER(in->a), r[in->d] = PARAMETER(in->a))
  DO(KEY_SET, key[in->a] = r[in->d] << (in->b - 1))
  DO(KEY, key[in->a] |= r[in->d] << (in->b - 1))
  OP(W_KEY) {
    for (std::size_t i = 0; i < (in->b + 63ull) / 64 && in->a + i < plan.key_words; ++i) {
      key[in->a + i] = i < limbs ? wide(in->d)[i] : 0;
    }
    NEXT;
  }
  OP(REG_RD) {
    const RegisterPlan& array = plan.arrays[in->a];
    const std::uint32_t index = static_cast<std::uint32_t>(r[in->b]);
    if (index >= array.size) {
      JUMP(in->c);
      NEXT;
    }
    const std::uint32_t* cell = state_.cells.cell(array, index);
    r[in->d] = array.width <= 32 ? cell[0] : cell[0] | std::uint64_t{cell[1]} << 32;
    NEXT;
  }
  OP(REG_WR) {
    const RegisterPlan& array = plan.arrays[in->a];
    const std::uint32_t index = static_cast<std::uint32_t>(r[in->b]);
    if (index >= array.size) NEXT;
    std::uint32_t* cell = state_.cells.cell(array, index);
    const std::uint64_t value = array.width < 64 ? r[in->d] & low_bits(array.width) : r[in->d];
    cell[0] = static_cast<std::uint32_t>(value);
    if (array.width > 32) cell[1] = static_cast<std::uint32_t>(value >> 32);
    state_.cells.wrote(array.bank, index);
    NEXT;
  }
  OP(COUNT) {
    auto& cells = state_.cells.counters[in->a];
    const std::uint32_t index = static_cast<std::uint32_t>(r[in->b]);
    if (index >= cells.size()) NEXT;
    cells[index].packets += 1;
    cells[index].bytes += packet.ingress_length;
    state_.cells.counted(in->a, index);
    NEXT;
  }
  OP(METER) {
    const std::uint32_t index = static_cast<std::uint32_t>(r[in->b]);
    if (index >= state_.cells.meters[in->a].size()) {
      JUMP(in->c);
      NEXT;
    }
    r[in->d] = state_.cells.execute_meter(in->a, index, packet.ingress_length, state_.now_us);
    NEXT;
  }
  OP(RANDOM) {
    const std::uint64_t low = r[in->a], high = r[in->b];
    if (low > high) {  // BMv2 leaves the field as it is
      JUMP(in->c);
      NEXT;
    }
    r[in->d] = std::uniform_int_distribution<std::uint64_t>(low, high)(state_.random);
    NEXT;
  }
  OP(HASH) {
    const std::uint64_t size = r[in->c];
    const std::uint64_t hash = calculate(plan, plan.calculations[in->a], packet, input_);
    r[in->d] = hash % (size ? size : 1) + r[in->b];
    NEXT;
  }
  LOAD(CHECKSUM, calculate(plan, plan.calculations[in->a], packet, input_))
  DO(DIGEST, packet.learn_list = r[in->a] & 0xffff)
  OP(CLONE) {
    packet.clone_session = (r[in->a] & 0xffff) | kCloneRequested;
    packet.clone_fields = r[in->b] & 0xffff;
    NEXT;
  }
  DO(RESUBMIT, packet.resubmit_fields = r[in->a] & 0xffff)
  DO(RECIRCULATE, packet.recirculate_fields = r[in->a] & 0xffff)
  DO(TRUNCATE, packet.truncate = std::min<std::size_t>(packet.truncate, r[in->a]))
#undef DO
#undef BINARY
#undef COMPARE
#undef VECTOR
#undef LOAD
#undef BITS
#undef PARAMETER
#undef FUSED
#undef FUSED_LOAD
#undef JUMP
#undef GO
#undef OP
#undef NEXT
}

}  // namespace railweave::engine
