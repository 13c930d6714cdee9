// SPDX-License-Identifier: Apache-2.0
#include "engine/machine.hpp"

#include <algorithm>
#include <cstring>
#include <iterator>
#include <tuple>
#include <utility>

#include "engine/calculation.hpp"
#include "engine/headers.hpp"

namespace railweave::engine {
namespace {

/// The final target of a chain of forward jumps. Backward jumps stay, because they are counted.
std::uint32_t destination(const std::vector<Instruction>& code, std::uint32_t pc) {
  while (code[pc].op == Op::JMP && code[pc].a > pc) pc = code[pc].a;
  return pc;
}

/// Replaces targets of jumps by their final targets.
std::vector<Instruction> shorten_jumps(std::vector<Instruction> code) {
  for (Instruction& instruction : code) {
    const char* signature = kOps[static_cast<std::size_t>(instruction.op)].signature;
    std::uint32_t* const operands[] = {&instruction.a, &instruction.b, &instruction.c};
    for (std::size_t i = 0; i < std::size(operands); ++i) {
      if (signature[i + 1] == 'p') *operands[i] = destination(code, *operands[i]);
    }
  }
  return code;
}

}  // namespace

Machine::Machine(Plan plan, State& state, Tracer* tracer)
    : plan_(std::move(plan)), state_(state), tracer_(tracer) {
  plan_.code = shorten_jumps(std::move(plan_.code));
  registers_.assign(plan_.registers, 0);
  std::copy(plan_.constants.begin(), plan_.constants.end(), registers_.begin());
  wides_.assign(std::size_t{plan_.wides} * plan_.limbs, 0);
  std::apply([&](auto&... of) { (of.assign(std::size_t{plan_.vectors} * plan_.vector_length, 0), ...); },
             vectors_);
  key_.assign(plan_.key_words + plan_.limbs, 0);
  if (plan_.large != kNone) zeros_.assign(plan_.headers[plan_.large].bytes, std::byte{0});
  std::size_t most = 0;
  for (const auto header : plan_.order) {
    const auto variable = plan_.headers[header].variable;
    most += plan_.headers[header].bytes + (variable == kNone ? 0 : plan_.variables[variable].bytes);
  }
  output_.resize(most + HeaderPlan::kMostRoom);
}

Pieces Machine::deparse(const Packet& packet) {
  std::byte* to = output_.data();
  Bytes body;
  for (const auto index : plan_.order) {
    const HeaderPlan& header = plan_.headers[index];
    if (packet.phv[header.valid] == std::byte{0}) continue;
    to = std::copy(body.begin(), body.end(), to);  // it is not the last one
    body = {};
    if (header.variable != kNone) {
      to += emit_variable(plan_, packet, header, to);
    } else if (index == plan_.large) {
      body = {packet.body ? packet.body : &packet.phv[header.image], header.bytes};
    } else {
      copy_image(to, &packet.phv[header.image], header, SIZE_MAX);
      to += header.bytes;
    }
  }
  return {Bytes(output_).first(static_cast<std::size_t>(to - output_.data())), body, packet.payload()};
}

Bytes Machine::sample(const Packet& packet, std::uint64_t learn_list) {
  gather(plan_, plan_.learn_lists[learn_list], packet, input_);
  return input_;
}

const Choice* Machine::choose(const Table& table, std::uint64_t group, const Packet& packet) {
  const CalculationPlan& selector = plan_.calculations[table.plan().selector];
  return table.choose(group,
                      calculate(plan_, Algorithm{selector.algorithm}, selector.inputs, packet, input_));
}

void Machine::note_event(TraceKind kind, std::uint64_t what, std::initializer_list<std::uint64_t> values) {
  std::vector<NotedValue> noted;
  for (const std::uint64_t value : values) noted.push_back({{value}});
  tracer_->note(kind, static_cast<std::uint32_t>(what), std::move(noted));
}

void Machine::note(std::uint32_t number) {
  if (tracer_) tracer_->note(TraceKind::kNote, number, std::move(state_.messages.values));
  state_.messages.values.clear();
}

void Machine::note_lookup(std::uint32_t index, const Packet& packet, const std::uint64_t* key) {
  if (!tracer_) return;
  Table& table = *state_.tables[index];
  const Entry* hit = table.lookup(key);
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
  tracer_->note(TraceKind::kLookup, index,
                {{std::vector<std::uint64_t>(key, key + table.plan().words)},
                 {{hit ? hit->handle : 0}},
                 {{action}},
                 {*parameters},
                 {{group}}});
}

}  // namespace railweave::engine
