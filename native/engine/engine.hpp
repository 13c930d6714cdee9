// SPDX-License-Identifier: Apache-2.0
// A P4 switch in memory: runs a plan on packets as BMv2's simple_switch runs the program.
#pragma once

#include <cstdint>
#include <deque>
#include <memory>
#include <mutex>
#include <optional>
#include <random>
#include <span>
#include <unordered_map>
#include <vector>

#include "core/bytes.hpp"
#include "engine/notices.hpp"
#include "engine/pass.hpp"
#include "engine/plan.hpp"
#include "engine/table.hpp"
#include "engine/trace.hpp"

namespace railweave::engine {

/// Where packets go that leave the switch.
struct OutputSink {
  virtual ~OutputSink() = default;
  /// `packet` is valid during the call only.
  virtual void emit(std::uint16_t port, Bytes packet) = 0;
  /// A digest or a packet for the control plane waits in the engine.
  virtual void noticed() {}
};

struct Replica {
  std::uint16_t port;
  std::uint16_t instance;
};

/// Packets by their fate, since the engine was made.
struct Statistics {
  std::uint64_t received = 0;
  std::uint64_t emitted = 0;
  std::uint64_t dropped = 0;    // by the program: port 511, or an empty or unknown multicast group
  std::uint64_t aborted = 0;    // by a limit (size, rounds, steps of the program) or a failed assertion
  std::uint64_t unnoticed = 0;  // digests and packets to the CPU port for which there was no room
};

inline constexpr std::uint16_t kDropPort = 511;
inline constexpr std::uint32_t kNoPort = 0x10000;
inline constexpr std::size_t kMaxPacketBytes = 65535;

// BMv2 lets a packet recirculate and multiply for ever. Here one received packet ends: what it asks for
// beyond these bounds is dropped and counted as aborted.
inline constexpr int kMaxPasses = 4096;                       // through ingress or egress
inline constexpr int kMaxRounds = 256;                        // resubmissions and recirculations
inline constexpr std::size_t kMaxHeldBytes = 64u << 20;       // of packets that wait for ingress or egress
inline constexpr std::size_t kMinHeld = 64, kMaxHeld = 4096;  // packets that may wait, whatever their size
inline constexpr std::uint32_t kMaxJumps = 1u << 16;          // backwards, in one pass

/// A message of the program: its number in the plan, and values.
struct LogRecord {
  std::uint32_t message;
  std::vector<NotedValue> values;
};

inline constexpr std::size_t kMaxLogRecords = 4096;

struct Interpreter;

/// Every public function but `process` takes the lock itself; `process` wants its caller to hold `traffic()`,
/// so that a batch of packets locks once.
class Engine {
 public:
  /// Throws InvalidPlan.
  explicit Engine(Bytes plan);
  ~Engine();
  Engine(const Engine&) = delete;
  Engine& operator=(const Engine&) = delete;

  /// What a caller of `process` holds, for a batch.
  struct Traffic {
    std::unique_lock<std::mutex> gate, state;
  };
  Traffic traffic() {
    std::unique_lock gate(gate_);
    return {std::move(gate), lock()};
  }
  /// Between these two, which one thread calls, no packet passes, while the control plane works as ever.
  void freeze() { gate_.lock(); }
  void thaw() { gate_.unlock(); }

  /// Runs one packet to its end: everything that leaves is emitted before the call returns.
  /// `now_us` is the switch's clock in microseconds and must not go back.
  void process(std::uint16_t port, Bytes packet, std::uint64_t now_us, OutputSink& sink);

  /// Control plane. Tables, arrays and the like are named by their index in the plan; a wrong index or
  /// handle throws std::out_of_range, a full table std::length_error.
  /// An action kGroup takes its action from the selector group that the one parameter names.
  std::uint64_t insert(std::uint32_t table, Match match, std::uint32_t action,
                       std::vector<std::uint64_t> parameters);
  void modify(std::uint32_t table, std::uint64_t handle, std::uint32_t action,
              std::vector<std::uint64_t> parameters);
  void remove(std::uint32_t table, std::uint64_t handle);
  void set_default(std::uint32_t table, std::uint32_t action, std::vector<std::uint64_t> parameters);
  CounterValue direct_counter(std::uint32_t table, std::uint64_t handle);
  void set_direct_counter(std::uint32_t table, std::uint64_t handle, CounterValue value);
  void set_direct_meter(std::uint32_t table, std::uint64_t handle, std::span<const MeterRate> rates);
  CounterValue counter(std::uint32_t counter, std::uint64_t index);
  void set_counter(std::uint32_t counter, std::uint64_t index, CounterValue value);
  void set_meter(std::uint32_t meter, std::uint64_t index, std::span<const MeterRate> rates);
  /// A register's value as 64-bit words, least significant first.
  std::vector<std::uint64_t> read_register(std::uint32_t array, std::uint64_t index);
  void write_register(std::uint32_t array, std::uint64_t index, std::span<const std::uint64_t> words);
  /// The choices of a table's selector group, in the order in which the hash numbers them.
  void set_group(std::uint32_t table, std::uint32_t group, std::vector<Choice> choices);
  void set_multicast(std::uint32_t group, std::vector<Replica> replicas);  // empty: the group goes
  /// Clones are cut to `packet_length` bytes; 0: they are not.
  void set_clone_session(std::uint32_t session, std::vector<Replica> replicas, std::uint32_t packet_length);
  /// Packets to this port wait for `take_packets` in place of leaving; kNoPort: there is no such port.
  void set_cpu_port(std::uint32_t port);
  bool has_notices();
  std::deque<Notices::Item> take_packets();
  std::deque<Notices::Item> take_digests();
  /// An entry of a table with idle time-outs; 0 us: none. Hits count from `now_us` on.
  void set_idle_timeout(std::uint32_t table, std::uint64_t handle, std::uint64_t timeout_us,
                        std::uint64_t now_us);
  std::uint64_t last_hit_us(std::uint32_t table, std::uint64_t handle);
  /// Entries that have been idle for their time-out, each once per idle period.
  std::vector<std::uint64_t> expired(std::uint32_t table, std::uint64_t now_us);
  std::uint64_t now_us();  // the time of the last packet
  void seed(std::uint64_t seed);
  Statistics statistics();

  /// Messages of the program (log_msg) are kept only while logging is on; failed assertions always are.
  void set_logging(bool on);
  /// All messages since the last call, oldest first, and how many found no room.
  std::pair<std::vector<LogRecord>, std::uint64_t> take_log();

  /// Runs another plan of the same program, which notes what happens, until `packets` packets of a port (of
  /// any, if there is none) have been recorded. Throws InvalidPlan, std::invalid_argument, and
  /// std::logic_error while a trace runs.
  void start_trace(Bytes plan, std::optional<std::uint16_t> port, std::uint32_t packets);
  /// All packets recorded since the last call, whole ones.
  std::vector<PacketTrace> take_traces();
  /// Ends the trace and forgets what has not been taken; false if there was none.
  bool stop_trace();
  bool tracing();

 private:
  friend struct Interpreter;

  struct MeterCell {
    bool configured = false;
    struct Bucket {
      MeterRate rate;
      std::uint64_t tokens = 0, last = 0;
    };
    std::vector<Bucket> buckets;
  };
  struct CloneSession {
    std::vector<Replica> replicas;
    std::uint32_t packet_length = 0;
  };
  /// A packet in BMv2's egress queue; without replicas it goes to `port`.
  struct Departure {
    std::unique_ptr<Pass> pass;
    std::span<const Replica> replicas;
    std::uint16_t port = 0;
  };
  struct Recirculated {
    std::unique_ptr<Pass> pass;
    std::vector<std::byte> packet;
  };

  void adopt_plan();

  // Traces: trace.cpp.
  void end_trace();
  void note_lookup(std::uint32_t table, const Pass& pass);
  void trace(TraceKind kind, std::uint64_t what, std::initializer_list<std::uint64_t> values = {}) {
    if (tracer_) [[unlikely]]
      tracer_->note(kind, static_cast<std::uint32_t>(what), values);
  }

  // Traffic management: traffic.cpp.
  void drop(Reason reason);
  void abort(Reason reason);
  void ingress(Pass& pass, OutputSink& sink);
  void egress(Pass& pass, std::uint16_t port, OutputSink& sink);
  bool resubmit(Pass& pass, std::uint64_t received_length);
  void replicate(Pass& pass, std::span<const Replica> replicas, OutputSink& sink);
  void depart(Pass& pass, std::span<const Replica> replicas, std::uint16_t port, OutputSink& sink);
  void drain(OutputSink& sink);
  void hold(const Pass& pass, std::span<const Replica> replicas, std::uint16_t port);
  void clone_ingress(const Pass& pass);
  void clone_egress(const Pass& pass);
  void learn(const Pass& pass, OutputSink& sink);
  void recirculate(const Pass& pass, Bytes packet);
  void emit(std::uint16_t port, Bytes packet, OutputSink& sink);
  const CloneSession* session(const Pass& pass) const;
  Bytes deparse(const Pass& pass);
  void start(Pass& pass) const;
  void keep_fields(const Pass& from, Pass& to, std::uint64_t list, std::uint64_t instance_type) const;
  void set(Pass& pass, Intrinsic field, std::uint64_t value) const;
  std::uint64_t get(const Pass& pass, Intrinsic field) const;
  bool spend_pass();
  bool spend_round();

  std::unique_ptr<Pass> take_pass();
  void give_pass(std::unique_ptr<Pass> pass) { free_passes_.push_back(std::move(pass)); }

  std::uint64_t execute_meter(MeterCell& cell, const MeterPlan& plan, std::uint64_t bytes) const;
  void configure(MeterCell& cell, const MeterPlan& plan, std::span<const MeterRate> rates) const;
  const Choice* choose(const Table& table, std::uint64_t group, const Pass& pass);
  std::uint32_t* register_row(const RegisterPlan& array, std::uint64_t index);
  void log(std::uint32_t message);
  Table& table(std::uint32_t index) { return *tables_.at(index); }

  std::unique_lock<std::mutex> lock() { return std::unique_lock(mutex_); }

  std::mutex gate_;  // taken before the other
  std::mutex mutex_;
  Plan plan_;
  std::vector<Instruction> code_;  // the plan's, fused
  std::vector<std::unique_ptr<Table>> tables_;
  std::vector<std::vector<std::uint32_t>> banks_;
  std::vector<std::vector<CounterValue>> counters_;
  std::vector<std::vector<MeterCell>> meters_;
  std::unordered_map<std::uint32_t, std::vector<Replica>> groups_;
  std::unordered_map<std::uint32_t, CloneSession> sessions_;
  std::uint32_t cpu_port_ = kNoPort;
  Notices digests_, packets_;
  std::mt19937_64 random_;
  Statistics statistics_;
  std::uint64_t now_us_ = 0;
  int passes_left_ = 0, rounds_left_ = 0;
  bool logging_ = false;
  std::vector<LogRecord> log_;
  std::vector<NotedValue> log_values_;  // of the message in the making
  std::uint64_t log_lost_ = 0;
  std::unique_ptr<Tracer> tracer_;   // while a trace runs
  Plan untraced_;                    // the program's own plan meanwhile
  std::vector<PacketTrace> traces_;  // of a trace that has come to its end

  /// What the interpreter seldom needs: see there.
  struct Frame {
    const std::uint64_t* parameters;  // of the table's action that runs
    const Instruction* back;          // where RET goes; actions do not nest
    std::uint32_t jumps;              // backwards, left
  };
  Frame frame_{};

  // Scratch memory, so that no packet allocates.
  std::vector<std::uint64_t> registers_, wides_, key_;
  std::vector<std::uint32_t> vectors_;
  std::vector<std::byte> input_, output_;
  std::unique_ptr<Pass> arrival_;
  std::vector<std::unique_ptr<Pass>> free_passes_;
  std::size_t held_limit_ = 0;
  std::vector<Departure> departures_;  // first in, first out, from `next_departure_` on
  std::size_t next_departure_ = 0;
  std::vector<Recirculated> recirculated_;
  std::size_t recirculated_first_ = 0, recirculated_end_ = 0, recirculated_bytes_ = 0;
};

}  // namespace railweave::engine
