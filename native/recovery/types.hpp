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

/// How far a rank has come, by rail: it has all that it needs of what lies before on the channel.
struct Position {
  std::uint32_t submitted = 0;          // calls that this rank has submitted
  std::vector<std::uint32_t> main{};    // op index; of channels that stay alive and of new ones: the agent's
  std::vector<std::uint32_t> repair{};  // number of a piece on the channel; UINT32_MAX: of all

  bool operator==(const Position&) const = default;
};

/// How far the ranks are on a channel: the furthest, the lowest rank that is that far, and the least far.
struct Reach {
  std::uint32_t done = 0;
  int rank = 0;
  std::uint32_t least = 0;

  bool operator==(const Reach&) const = default;
};

/// Submit nothing. Halt the main channel of each rail that is not in `alive`, also one that is being
/// restarted, reporting each that was not halted before by `halted`; halt all repair channels; then
/// `prepared`. May come again with a later attempt and fewer rails, before or after the answer.
struct Prepare {
  std::uint32_t epoch;
  std::uint32_t attempt;
  RailSet alive;

  bool operator==(const Prepare&) const = default;
};

/// The decision, the same on all ranks, in the same order. Calls from `boundary` on are split among `alive`;
/// go on.
struct Commit {
  std::uint32_t epoch;
  RailSet alive;
  std::uint32_t boundary;
  std::vector<Reach> main{};  // by rail
  std::vector<Reach> repair{};

  bool operator==(const Commit&) const = default;
};

/// Start the rail's main channel anew and try it, then `restarted`. `bases`: of each chunk number that ranks
/// reported when they halted, the greatest.
struct Restart {
  std::size_t rail;
  std::uint32_t incarnation;
  std::vector<std::uint64_t> bases{};
};

/// Halt that incarnation, whatever has become of it, then `halted`.
struct Halt {
  std::size_t rail;
  std::uint32_t incarnation;
};

/// Ends the communicator: nothing but goodbyes is sent from here on.
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

/// For users; the same text on all ranks.
struct RailChanged {
  std::size_t rail;
  State state;
  std::string reason;
};

using Event = std::variant<Prepare, Commit, Restart, Halt, PeerLost, AllCompleted, AllSubmitted, RailChanged>;

/// A datagram to send. The bytes stay until the next one is asked for.
struct Outgoing {
  std::size_t rail;
  int rank;
  bool heartbeat;
  Bytes bytes;
};

/// Why a datagram is refused.
enum class Refusal : std::uint8_t {
  kStranger,   // without a valid code: of another job, spoilt, or made up
  kMalformed,  // of another version, with impossible fields, or not for this rank to hear
  kReplayed,   // it has come before, or is far older than others that have
};

struct Stats {
  std::uint64_t sent = 0;
  std::uint64_t received = 0;   // those that were understood
  std::uint64_t strangers = 0;  // refused, by reason
  std::uint64_t malformed = 0;
  std::uint64_t replayed = 0;
  std::uint64_t suspicions = 0;  // silences on a rail that made this rank suspect it
  std::uint64_t rounds = 0;      // decisions applied
  std::uint64_t violations = 0;  // decisions that the protocol does not allow in the present state
};

}  // namespace railweave::recovery
