// SPDX-License-Identifier: Apache-2.0
#include "engine/fuse.hpp"

#include <cstring>
#include <iterator>

namespace railweave::engine {

namespace {

struct Pair {
  Op first, second, fused;
  bool handed_on;  // only where the second takes, as its operand d, what the first has loaded
};

// Those that the aggregation program and the programs of tests/vectors run most.
constexpr Pair kPairs[] = {
    {Op::LD_N32, Op::JZ, Op::LD_N32_JZ, true},          {Op::LD_N32, Op::JEQ, Op::LD_N32_JEQ, true},
    {Op::LD_N32, Op::JNE, Op::LD_N32_JNE, true},        {Op::LD_U8, Op::JZ, Op::LD_U8_JZ, true},
    {Op::LD_U8, Op::JEQ, Op::LD_U8_JEQ, true},          {Op::LD_BE16, Op::JEQ, Op::LD_BE16_JEQ, true},
    {Op::LD_BE16, Op::JNE, Op::LD_BE16_JNE, true},      {Op::LD_BITS, Op::JEQ, Op::LD_BITS_JEQ, true},
    {Op::LD_BITS, Op::JNE, Op::LD_BITS_JNE, true},      {Op::LD_N32, Op::KEY_SET, Op::LD_N32_KEY_SET, true},
    {Op::LD_N32, Op::KEY, Op::LD_N32_KEY, true},        {Op::LD_N32, Op::ST_N32, Op::LD_N32_ST_N32, true},
    {Op::LD_N32, Op::LD_N32, Op::LD_N32_LD_N32, false}, {Op::ST_N32, Op::ST_N32, Op::ST_N32_ST_N32, false},
    {Op::ST_N32, Op::JMP, Op::ST_N32_JMP, false},       {Op::PARAM, Op::PARAM, Op::PARAM_PARAM, false},
};

const Pair* pair_of(const Instruction& first, const Instruction& second) {
  for (const Pair& pair : kPairs) {
    if (pair.first == first.op && pair.second == second.op && (!pair.handed_on || first.d == second.d)) {
      return &pair;
    }
  }
  return nullptr;
}

/// Where a jump ends up that finds a jump forwards at its target, and so on. Backward jumps stay: they count.
std::uint32_t destination(const std::vector<Instruction>& code, std::uint32_t pc) {
  while (code[pc].op == Op::JMP && code[pc].a > pc) pc = code[pc].a;
  return pc;
}

}  // namespace

std::vector<Instruction> fuse(std::vector<Instruction> code) {
  for (Instruction& instruction : code) {
    if (instruction.op >= Op::kCount) continue;
    const char* signature = kOps[static_cast<std::size_t>(instruction.op)].signature;
    std::uint32_t* const operands[] = {&instruction.a, &instruction.b, &instruction.c};
    for (std::size_t i = 0; i < std::size(operands); ++i) {
      if (signature[i + 1] == 'p') *operands[i] = destination(code, *operands[i]);
    }
  }
  for (std::size_t i = 0; i + 1 < code.size(); ++i) {
    if (const Pair* pair = pair_of(code[i], code[i + 1])) code[i++].op = pair->fused;
  }
  return code;
}

}  // namespace railweave::engine
