// SPDX-License-Identifier: Apache-2.0
#include "engine/machine.hpp"

#include <algorithm>
#include <cstring>
#include <iterator>
#include <utility>

#include "engine/calculation.hpp"
#include "engine/headers.hpp"

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

/// A copy of checked code in which an instruction that is often followed by the one behind it does the work
/// of both, and jumps go where they end up. Every instruction keeps its place and its operands: a jump to the
/// second of a pair finds it as it was.
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

}  // namespace

Machine::Machine(Plan plan, State& state, Tracer* tracer)
    : plan_(std::move(plan)), code_(fuse(plan_.code)), state_(state), tracer_(tracer) {
  registers_.assign(plan_.registers, 0);
  std::copy(plan_.constants.begin(), plan_.constants.end(), registers_.begin());
  wides_.assign(std::size_t{plan_.wides} * plan_.limbs, 0);
  vectors_.assign(std::size_t{plan_.vectors} * plan_.vector_length, 0);
  key_.assign(plan_.key_words + plan_.limbs, 0);
  std::size_t most = kMaxPacketBytes;
  for (const auto header : plan_.order) {
    const auto variable = plan_.headers[header].variable;
    most += plan_.headers[header].bytes + (variable == kNone ? 0 : plan_.variables[variable].bytes);
  }
  output_.resize(most);
}

Bytes Machine::deparse(const Packet& packet) {
  std::byte* to = output_.data();
  for (const auto index : plan_.order) {
    const HeaderPlan& header = plan_.headers[index];
    if (packet.phv[header.valid] == std::byte{0}) continue;
    if (header.variable != kNone) {
      to += emit_variable(plan_, packet, header, to);
      continue;
    }
    std::memcpy(to, &packet.phv[header.image], header.bytes);
    to += header.bytes;
  }
  const Bytes payload = packet.payload();
  if (!payload.empty()) std::memcpy(to, payload.data(), payload.size());
  return Bytes(output_).first(static_cast<std::size_t>(to - output_.data()) + payload.size());
}

Bytes Machine::sample(const Packet& packet, std::uint64_t learn_list) {
  gather(plan_, plan_.learn_lists[learn_list], packet, input_);
  return input_;
}

const Choice* Machine::choose(const Table& table, std::uint64_t group, const Packet& packet) {
  return table.choose(group, calculate(plan_, plan_.calculations[table.plan().selector], packet, input_));
}

/// What the TABLE instruction behind it will find.
void Machine::note_lookup(std::uint32_t index, const Packet& packet) {
  if (!tracer_) return;
  Table& table = *state_.tables[index];
  const Entry* hit = table.lookup(key_.data());
  const Entry& entry = hit ? *hit : table.fallback();
  std::uint32_t action = entry.action;
  const std::vector<std::uint64_t>* parameters = &entry.parameters;
  std::uint64_t group = kNone;
  if (action == kGroup) {
    group = parameters->at(0);
    const Choice* choice = choose(table, group, packet);
    action = choice ? choice->action : kNone;
    if (choice) parameters = &choice->parameters;
  }
  const auto key_end = key_.begin() + table.plan().words;
  tracer_->note(TraceKind::kLookup, index,
                {{std::vector<std::uint64_t>(key_.begin(), key_end)},
                 {{hit ? hit->handle : 0}},
                 {{action}},
                 {*parameters},
                 {{group}}});
}

}  // namespace railweave::engine
