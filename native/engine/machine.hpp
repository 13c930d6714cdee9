// SPDX-License-Identifier: Apache-2.0
// Runs the code of one plan on packets. Each machine has its own registers and scratch memory. The machine
// that runs the plan of a trace shares the switch's state with the other machine.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <tuple>
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

class Machine;

/// The stages of one plan as machine code.
struct CompiledPlan {
  std::uint64_t abi;   // kAbi of the engine that it was compiled for
  std::uint64_t plan;  // its hash
  bool (*stages[kStages])(Machine& machine, Packet& packet);
};

class Machine {
 public:
  /// `tracer` gets the events of the plan's notes, if the plan has any.
  Machine(Plan plan, State& state, Tracer* tracer = nullptr);
  virtual ~Machine() = default;

  const Plan& plan() const { return plan_; }

  /// From the start of a stage to its END. False: it jumped backwards too often or an assertion failed, and
  /// the packet must be dropped.
  bool run(Packet& packet, Stage stage) {
    const auto number = static_cast<std::size_t>(stage);
    return compiled_ ? compiled_->stages[number](*this, packet) : interpret(packet, plan_.entry(stage));
  }
  /// Stages run this code, compiled from the same plan, from now on; nullptr: they are interpreted.
  void use(const CompiledPlan* compiled) { compiled_ = compiled; }

  /// The bytes of the large header before it is extracted: zeros. nullptr if the plan has no large header.
  const std::byte* zeros() const { return plan_.large == kNone ? nullptr : zeros_.data(); }
  /// The packet as it leaves; valid until the next call, and as long as the packet.
  Pieces deparse(const Packet& packet);
  /// The fields of a digest; valid until the next call of a member.
  Bytes sample(const Packet& packet, std::uint64_t learn_list);

  bool traced() const { return tracer_ != nullptr; }
  [[gnu::always_inline]] void trace(TraceKind kind, std::uint64_t what,
                                    std::initializer_list<std::uint64_t> values = {}) {
    if (traced()) [[unlikely]]
      note_event(kind, what, values);
  }

 private:
  template <typename Program>
  friend struct Run;

  void note_event(TraceKind kind, std::uint64_t what, std::initializer_list<std::uint64_t> values);

  // Virtual: compiled code calls these functions without being linked with them.
  /// From `pc` to END or to the JOIN at `until` (interpreter.cpp).
  virtual bool interpret(Packet& packet, std::uint32_t pc, std::uint32_t until = kNone,
                         const std::uint64_t* parameters = nullptr);
  virtual const Choice* choose(const Table& table, std::uint64_t group, const Packet& packet);
  /// A note of a trace, with the values that have been collected.
  virtual void note(std::uint32_t number);
  /// The result of the TABLE instruction that follows.
  virtual void note_lookup(std::uint32_t table, const Packet& packet, const std::uint64_t* key);

  std::uint64_t* spare() { return key_.data() + plan_.key_words; }  // an integer of `limbs` words

  Plan plan_;
  State& state_;
  Tracer* tracer_;
  const CompiledPlan* compiled_ = nullptr;
  std::vector<std::uint64_t> registers_, wides_, key_;
  std::tuple<std::vector<std::uint32_t>, std::vector<std::uint64_t>> vectors_;  // by their words
  std::vector<std::byte> input_, output_, zeros_;
};

}  // namespace railweave::engine
