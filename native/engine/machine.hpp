// SPDX-License-Identifier: Apache-2.0
// Runs the code of one plan on packets. Registers and scratch memory are its own; the switch's state it
// shares with the machine that runs the plan of a trace.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <utility>
#include <vector>

#include "core/bytes.hpp"
#include "engine/packet.hpp"
#include "engine/plan.hpp"
#include "engine/state.hpp"
#include "engine/trace.hpp"

namespace railweave::engine {

inline constexpr std::size_t kMaxPacketBytes = 65535;
inline constexpr std::uint32_t kMaxJumps = 1u << 16;  // backwards, in one run

class Machine {
 public:
  /// `tracer` gets what the plan's notes tell, if it has any.
  Machine(Plan plan, State& state, Tracer* tracer = nullptr);

  const Plan& plan() const { return plan_; }

  /// From `pc` to END (interpreter.cpp). False: it jumped backwards too often or an assertion failed, and the
  /// packet must be dropped.
  bool run(Packet& packet, std::uint32_t pc);

  /// The packet as it leaves; valid until the next call.
  Bytes deparse(const Packet& packet);
  /// The fields of a digest; valid until the next call of a member.
  Bytes sample(const Packet& packet, std::uint64_t learn_list);

  void trace(TraceKind kind, std::uint64_t what, std::initializer_list<std::uint64_t> values = {}) {
    if (!tracer_) [[likely]]
      return;
    std::vector<NotedValue> noted;
    for (const std::uint64_t value : values) noted.push_back({{value}});
    tracer_->note(kind, static_cast<std::uint32_t>(what), std::move(noted));
  }

 private:
  /// Control flow of the action that runs: in memory, as few instructions need it.
  struct Frame {
    const std::uint64_t* parameters;  // of the table's action
    const Instruction* back;          // where RET goes; actions do not nest
    std::uint32_t jumps;              // backwards, left
  };

  void note_lookup(std::uint32_t table, const Packet& packet);
  const Choice* choose(const Table& table, std::uint64_t group, const Packet& packet);

  Plan plan_;
  std::vector<Instruction> code_;  // the plan's, fused
  State& state_;
  Tracer* tracer_;
  Frame frame_{};
  std::vector<std::uint64_t> registers_, wides_, key_;
  std::vector<std::uint32_t> vectors_;
  std::vector<std::byte> input_, output_;
};

}  // namespace railweave::engine
