// SPDX-License-Identifier: Apache-2.0
// A P4 switch in memory: runs a plan on packets as BMv2's simple_switch runs the program.
#pragma once

#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "core/bytes.hpp"
#include "engine/machine.hpp"
#include "engine/plan.hpp"
#include "engine/state.hpp"
#include "engine/trace.hpp"
#include "engine/traffic_manager.hpp"
#include "engine/translate.hpp"

namespace railweave::engine {

/// Joins the parts, and keeps packets and control plane apart. Any thread may call any function.
class Engine {
 public:
  /// Throws InvalidPlan.
  explicit Engine(Bytes plan);
  Engine(const Engine&) = delete;
  Engine& operator=(const Engine&) = delete;

  /// Exclusive access to the switch's state: packets and other callers wait while this object lives.
  class Control {
   public:
    Control(std::mutex& mutex, State& state) : lock_(mutex), state_(&state) {}
    State* operator->() const { return state_; }

   private:
    std::unique_lock<std::mutex> lock_;
    State* state_;
  };
  Control control() { return {mutex_, state_}; }

  /// The locks that a caller of `process` holds for a batch of packets.
  struct Traffic {
    std::unique_lock<std::mutex> gate, state;
  };
  Traffic traffic() {
    std::unique_lock gate(gate_);
    return {std::move(gate), std::unique_lock(mutex_)};
  }
  /// No packet passes between `freeze` and `thaw`; the control plane goes on working. The same thread must
  /// call both.
  void freeze() { gate_.lock(); }
  void thaw() { gate_.unlock(); }

  /// Runs one packet to its end: everything that leaves is emitted before the call returns. The caller holds
  /// `traffic()`. `now_us` is the switch's clock in microseconds and must not go back.
  void process(std::uint16_t port, Bytes packet, std::uint64_t now_us, OutputSink& sink);
  /// Runs the next packet that waits at this port from egress on; false if no packet waits. Arguments as for
  /// `process`.
  bool release(std::uint16_t port, std::uint64_t now_us, OutputSink& sink);
  /// Whether the program looks at the time of each packet.
  bool uses_clock() const { return machine_.plan().uses_clock(); }
  /// Whether the program looks at queues or at the time in them.
  bool uses_backlog() const { return machine_.plan().uses_backlog(); }

  /// The plan as C++, which compiles to a library for `use`; empty for a plan that is only interpreted.
  std::string source() const { return translate(machine_.plan(), hash_); }
  /// Packets run the code of this library from the next batch on. Throws std::invalid_argument if it cannot
  /// be loaded, or is of another plan or build.
  void use(const std::string& library);

  /// Records the next `packets` packets of a port, or of all ports without `port`. They run `plan`: a plan of
  /// the same program that notes every step. Throws InvalidPlan, std::invalid_argument, and std::logic_error
  /// while a trace runs.
  void start_trace(Bytes plan, std::optional<std::uint16_t> port, std::uint32_t packets);
  /// All packets recorded since the last call, whole ones.
  std::vector<PacketTrace> take_traces();
  /// Ends the trace and drops records that have not been taken; false if no trace ran.
  bool stop_trace();
  bool tracing();

 private:
  struct Trace {
    Trace(Plan plan, State& state, Tracer made)
        : tracer(std::move(made)), machine(std::move(plan), state, &tracer) {}
    Tracer tracer;
    Machine machine;
  };

  struct Close {
    void operator()(void* library) const;
  };
  using Library = std::unique_ptr<void, Close>;

  void collect_traces();

  Engine(Plan plan, std::uint64_t hash);

  std::mutex gate_;  // taken before the other
  std::mutex mutex_;
  State state_;
  std::uint64_t hash_;  // of the plan
  Library library_;     // that the machine runs, if any
  Machine machine_;
  TrafficManager traffic_manager_;
  std::unique_ptr<Trace> trace_;     // while one runs
  std::vector<PacketTrace> traces_;  // recorded and not yet taken
};

}  // namespace railweave::engine
