// SPDX-License-Identifier: Apache-2.0
// The messages between the recovery machine and the agent. docs/design/recovery.md describes the protocol.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "core/bytes.hpp"
#include "core/secret.hpp"
#include "core/time.hpp"
#include "core/timing.hpp"

namespace railweave::recovery {

using RailSet = std::uint64_t;  // bit i: rail i

inline constexpr std::size_t kMaxRails = 16;
inline constexpr int kMaxRanks = 1024;
inline constexpr std::size_t kMaxTrees = 32;  // of one rail

constexpr RailSet bit(std::size_t rail) { return RailSet{1} << rail; }
constexpr bool has(RailSet set, std::size_t rail) { return (set & bit(rail)) != 0; }
constexpr RailSet all_of(std::size_t rails) { return bit(rails) - 1; }

struct Options {
  int rank;
  int world_size;     // 2 … kMaxRanks
  std::size_t rails;  // 1 … kMaxRails
  Secret secret;      // of the job
  // See timing.hpp.
  Duration heartbeat = timing::kHeartbeat;
  Duration least_silence = timing::kLeastSilence;
  Duration most_silence = timing::kMostSilence;
  Duration most_leeway = timing::kMostLeeway;
  Duration memory = timing::kMemory;
  Duration settling = timing::kSettling;
  Duration hold = timing::kHold;
  Duration most_hold = timing::kMostHold;
  Duration health = timing::kHealth;
  Duration trial = timing::kTrial;
  Duration peer_timeout = timing::kPeerTimeout;
};

/// How far a rank is on each rail's channels: it needs nothing before these numbers.
struct Position {
  std::uint32_t submitted = 0;          // calls that this rank has submitted
  std::vector<std::uint32_t> main{};    // op index; for channels that stay or join see Calls::prepare
  std::vector<std::uint32_t> repair{};  // number of a piece on the channel; UINT32_MAX: nothing is needed

  bool operator==(const Position&) const = default;
};

/// Positions of the ranks on a channel: the greatest, the lowest rank that has it, and the least.
struct Reach {
  std::uint32_t done = 0;
  int rank = 0;
  std::uint32_t least = 0;

  bool operator==(const Reach&) const = default;
};

/// Stop submitting calls. Halt the main channel of each rail outside `alive`, also during a restart, and
/// report each new halt by `halted`. Halt all repair channels, then answer by `prepared`. A later attempt
/// with fewer rails may come before or after the answer.
struct Prepare {
  std::uint32_t epoch;
  std::uint32_t attempt;
  RailSet alive;

  bool operator==(const Prepare&) const = default;
};

/// A decision. All ranks get the same decisions in the same order. Calls from `boundary` on are split among
/// `alive`. The agent submits calls again.
struct Commit {
  std::uint32_t epoch;
  RailSet alive;
  std::uint32_t boundary;
  std::vector<Reach> main{};  // by rail
  std::vector<Reach> repair{};

  bool operator==(const Commit&) const = default;
};

/// Restart the rail's main channel, run the trial, then answer by `restarted`. `bases`: by chunk number, the
/// maximum over all ranks' reports at the halt.
struct Restart {
  std::size_t rail;
  std::uint32_t incarnation;
  std::vector<std::uint64_t> bases{};
};

/// Halt this incarnation in any state, then answer by `halted`.
struct Halt {
  std::size_t rail;
  std::uint32_t incarnation;
};

/// The communicator ends. From now on only goodbyes are sent.
struct PeerLost {
  int rank;
  std::string reason;
};

/// Every rank has completed all calls before this one.
struct AllCompleted {
  std::uint32_t op;
};

/// Every rank has submitted all calls before this one.
struct AllSubmitted {
  std::uint32_t op;
};

enum class State : std::uint8_t { kUp, kDown, kRecovering };

/// A report to users, with the same text on all ranks.
struct RailChanged {
  std::size_t rail;
  State state;
  std::string reason;
};

using Event = std::variant<Prepare, Commit, Restart, Halt, PeerLost, AllCompleted, AllSubmitted, RailChanged>;

/// A datagram to send. The bytes are valid until the next datagram is requested.
struct Outgoing {
  std::size_t rail;
  int rank;
  bool heartbeat;
  Bytes bytes;
};

/// Why a datagram is refused.
enum class Refusal : std::uint8_t {
  kStranger,   // no valid code: from another job, damaged, or forged
  kMalformed,  // another version, impossible fields, or not meant for this rank
  kReplayed,   // seen before, or far older than the newest one seen
};

struct Stats {
  std::uint64_t sent = 0;
  std::uint64_t received = 0;   // accepted datagrams
  std::uint64_t strangers = 0;  // refused datagrams, by reason
  std::uint64_t malformed = 0;
  std::uint64_t replayed = 0;
  std::uint64_t suspicions = 0;  // rails that this rank suspected because of silence
  std::uint64_t rounds = 0;      // decisions applied
  std::uint64_t violations = 0;  // decisions that the protocol did not allow in that state
};

}  // namespace railweave::recovery
