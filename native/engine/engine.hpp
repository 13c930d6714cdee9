// SPDX-License-Identifier: Apache-2.0
// A P4 switch in memory: runs a plan on packets as BMv2's simple_switch runs the program.
#pragma once

#include <cstdint>
#include <memory>
#include <mutex>
#include <random>
#include <span>
#include <unordered_map>
#include <vector>

#include "core/bytes.hpp"
#include "engine/plan.hpp"
#include "engine/table.hpp"

namespace railweave::engine {

/// Where packets go that leave the switch.
struct OutputSink {
  virtual ~OutputSink() = default;
  /// `packet` is valid during the call only.
  virtual void emit(std::uint16_t port, Bytes packet) = 0;
};

struct Replica {
  std::uint16_t port;
  std::uint16_t instance;
};

/// Packets by their fate, since the engine was made.
struct Statistics {
  std::uint64_t received = 0;
  std::uint64_t emitted = 0;
  std::uint64_t dropped = 0;  // by the program: port 511, or an empty or unknown multicast group
  std::uint64_t aborted = 0;  // by a limit (size, recirculations, steps of the program) or a failed assertion
};

inline constexpr std::uint16_t kDropPort = 511;
inline constexpr std::size_t kMaxPacketBytes = 65535;
inline constexpr int kMaxPasses = 4096;               // through ingress or egress, for one received packet
inline constexpr int kMaxCloneDepth = 32;             // clones of clones of …
inline constexpr std::uint32_t kMaxJumps = 1u << 16;  // backwards, in one pass

/// A message of the program: its number in the plan, and values (least significant word first, sign).
struct LogRecord {
  struct Value {
    std::vector<std::uint64_t> words;
    bool negative;
  };
  std::uint32_t message;
  std::vector<Value> values;
};

inline constexpr std::size_t kMaxLogRecords = 4096;

struct Interpreter;
struct Pass;

/// Every public function but `process` takes the lock itself; `process` wants its caller to hold `lock()`,
/// so that a batch of packets locks once.
class Engine {
 public:
  /// Throws InvalidPlan.
  explicit Engine(Bytes plan);
  ~Engine();
  Engine(const Engine&) = delete;
  Engine& operator=(const Engine&) = delete;

  std::unique_lock<std::mutex> lock() { return std::unique_lock(mutex_); }

  /// Runs one packet to its end: everything that leaves is emitted before the call returns.
  /// `now_us` is the switch's clock in microseconds and must not go back.
  void process(std::uint16_t port, Bytes packet, std::uint64_t now_us, OutputSink& sink);

  /// Control plane. Tables, arrays and the like are named by their index in the plan; a wrong index or
  /// handle throws std::out_of_range, a full table std::length_error.
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
  void set_multicast(std::uint32_t group, std::vector<Replica> replicas);  // empty: the group goes
  void set_clone_session(std::uint32_t session, std::vector<Replica> replicas);
  void seed(std::uint64_t seed);
  Statistics statistics();

  /// Messages of the program (log_msg) are kept only while logging is on; failed assertions always are.
  void set_logging(bool on);
  /// All messages since the last call, oldest first, and how many found no room.
  std::pair<std::vector<LogRecord>, std::uint64_t> take_log();

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
  struct Recirculated {
    std::vector<std::byte> metadata;
    std::vector<std::byte> packet;
  };

  void ingress(Pass& pass, OutputSink& sink);
  void egress(Pass& pass, std::uint16_t port, OutputSink& sink);
  void replicate(Pass& pass, std::span<const Replica> replicas, OutputSink& sink);
  void clone_ingress(const Pass& pass, OutputSink& sink);
  void clone_egress(const Pass& pass, OutputSink& sink);
  void recirculate(const Pass& pass, Bytes packet);
  Bytes deparse(const Pass& pass);
  void start(Pass& pass) const;
  void keep_fields(const Pass& from, Pass& to, std::uint64_t list, std::uint64_t instance_type) const;
  void set(Pass& pass, Intrinsic field, std::uint64_t value) const;
  std::uint64_t get(const Pass& pass, Intrinsic field) const;
  bool spend_pass();

  Pass& take_pass();
  void give_pass() { --passes_in_use_; }

  std::uint64_t execute_meter(MeterCell& cell, const MeterPlan& plan, std::uint64_t bytes) const;
  void configure(MeterCell& cell, const MeterPlan& plan, std::span<const MeterRate> rates) const;
  std::uint32_t* register_row(const RegisterPlan& array, std::uint64_t index);
  void log(std::uint32_t message);
  Table& table(std::uint32_t index) { return *tables_.at(index); }

  std::mutex mutex_;
  Plan plan_;
  std::vector<std::unique_ptr<Table>> tables_;
  std::vector<std::vector<std::uint32_t>> banks_;
  std::vector<std::vector<CounterValue>> counters_;
  std::vector<std::vector<MeterCell>> meters_;
  std::unordered_map<std::uint32_t, std::vector<Replica>> groups_, sessions_;
  std::mt19937_64 random_;
  Statistics statistics_;
  std::uint64_t now_us_ = 0;
  int passes_left_ = 0;
  int clone_depth_ = 0;
  bool logging_ = false;
  std::vector<LogRecord> log_;
  std::vector<LogRecord::Value> log_values_;  // of the message in the making
  std::uint64_t log_lost_ = 0;

  // Scratch memory, so that no packet allocates.
  std::vector<std::uint64_t> registers_, wides_, key_;
  std::vector<std::uint32_t> vectors_;
  std::vector<std::byte> input_, output_;
  std::vector<std::unique_ptr<Pass>> passes_;
  std::size_t passes_in_use_ = 0;
  std::vector<Recirculated> recirculated_;
  std::size_t recirculated_first_ = 0, recirculated_end_ = 0;
};

}  // namespace railweave::engine
