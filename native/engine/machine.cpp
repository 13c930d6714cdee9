// SPDX-License-Identifier: Apache-2.0
#include "engine/machine.hpp"

#include <algorithm>
#include <cstring>
#include <utility>

#include "engine/calculation.hpp"
#include "engine/fuse.hpp"
#include "engine/headers.hpp"

namespace railweave::engine {

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
