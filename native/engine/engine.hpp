// SPDX-License-Identifier: Apache-2.0
// A P4 switch in memory: runs a plan on packets as BMv2's simple_switch runs the program.
#pragma once

#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <utility>
#include <vector>

#include "core/bytes.hpp"
#include "engine/machine.hpp"
#include "engine/plan.hpp"
#include "engine/state.hpp"
#include "engine/trace.hpp"
#include "engine/traffic_manager.hpp"

namespace railweave::engine {

/// Joins the parts, and keeps packets and control plane apart. Any thread may call any function.
class Engine {
 public:
  /// Throws InvalidPlan.
  explicit Engine(Bytes plan);
  Engine(const Engine&) = delete;
  Engine& operator=(const Engine&) = delete;

  /// The switch's state, with no packet and no other caller at it while this lives.
  class Control {
   public:
    Control(std::mutex& mutex, State& state) : lock_(mutex), state_(&state) {}
    State* operator->() const { return state_; }

   private:
    std::unique_lock<std::mutex> lock_;
    State* state_;
  };
  Control control() { return {mutex_, state_}; }

  /// What a caller of `process` holds, for a batch of packets.
  struct Traffic {
    std::unique_lock<std::mutex> gate, state;
  };
  Traffic traffic() {
    std::unique_lock gate(gate_);
    return {std::move(gate), std::unique_lock(mutex_)};
  }
  /// Between these two, which one thread calls, no packet passes, while the control plane works as ever.
  void freeze() { gate_.lock(); }
  void thaw() { gate_.unlock(); }

  /// Runs one packet to its end: everything that leaves is emitted before the call returns. The caller holds
  /// `traffic()`. `now_us` is the switch's clock in microseconds and must not go back.
  void process(std::uint16_t port, Bytes packet, std::uint64_t now_us, OutputSink& sink);
  /// Whether the program looks at the time of each packet.
  bool uses_clock() const { return machine_.plan().uses_clock(); }

  /// Packets of a port (of any, if there is none) run another plan of the same program from now on, one that
  /// notes what happens, until `packets` have been recorded. Throws InvalidPlan, std::invalid_argument, and
  /// std::logic_error while a trace runs.
  void start_trace(Bytes plan, std::optional<std::uint16_t> port, std::uint32_t packets);
  /// All packets recorded since the last call, whole ones.
  std::vector<PacketTrace> take_traces();
  /// Ends the trace and forgets what has not been taken; false if there was none.
  bool stop_trace();
  bool tracing();

 private:
  struct Trace {
    Trace(Plan plan, State& state, Tracer made)
        : tracer(std::move(made)), machine(std::move(plan), state, &tracer) {}
    Tracer tracer;
    Machine machine;
  };

  void collect_traces();

  explicit Engine(Plan plan);

  std::mutex gate_;  // taken before the other
  std::mutex mutex_;
  State state_;
  Machine machine_;
  TrafficManager traffic_manager_;
  std::unique_ptr<Trace> trace_;     // while one runs
  std::vector<PacketTrace> traces_;  // recorded and not yet taken
};

}  // namespace railweave::engine
