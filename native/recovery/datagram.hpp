// SPDX-License-Identifier: Apache-2.0
// Datagrams between the recovery machines of a communicator's ranks, over UDP on every rail.
//
// Each datagram has a number against replay, and ends with an authentication code over all its other bytes.
// Each receiver has its own key for this code, so a rank refuses datagrams for other ranks.
//
// Heartbeats go around the ring. An INQUIRY goes to a rank when nobody seems to listen at its address. STATUS
// goes to rank 0. Rank 0's decision carries PREPARE and COMMIT. STATUS and decision are states, not messages.
// Each has a number and the sender's whole state, and is repeated until the receiver has seen the number.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "core/bytes.hpp"
#include "core/secret.hpp"
#include "recovery/types.hpp"

namespace railweave::recovery {

inline constexpr std::uint8_t kVersion = 3;
inline constexpr std::size_t kMaxDatagram = 8192;  // bytes; with few rails far below an Ethernet frame
inline constexpr std::size_t kMaxReason = 96;      // bytes of text
inline constexpr std::size_t kWindow = 64;         // ranks whose progress one heartbeat carries

/// How far a rank is. All three numbers only grow.
struct Standing {
  std::uint32_t completed = 0;  // all calls before this one are complete
  std::uint32_t submitted = 0;  // all calls before this one have been submitted
  std::uint32_t tick = 0;       // number of its last heartbeat

  bool operator==(const Standing&) const = default;
};

/// Sent on all rails with the same tick, so that the receiver can compare the rails.
struct Heartbeat {
  std::uint32_t tick = 0;
  std::uint16_t first = 0;            // rank of the first entry; the window wraps around
  std::vector<Standing> standings{};  // to the sender's knowledge; min(kWindow, world size) entries

  bool operator==(const Heartbeat&) const = default;
};

/// The number of the sender's state, and the newest number that the sender has seen from the receiver.
struct Stamp {
  std::uint32_t serial = 0;
  std::uint32_t seen = 0;
  bool answer = false;  // the sender repeats its state until the receiver has seen `serial`

  bool operator==(const Stamp&) const = default;
};

/// The state of a rail's main channel on one rank.
enum class ChannelState : std::uint8_t { kUp, kHalting, kHalted, kRestarting, kPassed, kFailed };
inline constexpr std::size_t kChannelStates = 6;

struct ChannelStatus {
  ChannelState state = ChannelState::kUp;
  std::uint32_t incarnation = 0;
  bool unfit = false;                        // the sender does not hear the rail, or has an obstacle on it
  bool broken = false;                       // the main channel needs a restart; implies unfit
  std::string reason{};                      // why it is unfit
  std::vector<std::uint64_t> next_chunks{};  // at the halt

  bool operator==(const ChannelStatus&) const = default;
};

/// The answer to a PREPARE.
struct Prepared {
  std::uint32_t attempt = 0;
  Position position{};

  bool operator==(const Prepared&) const = default;
};

struct Status {
  std::uint32_t epoch = 0;  // of the last commit applied
  std::vector<ChannelStatus> channels{};
  std::optional<Prepared> prepared{};  // for epoch + 1

  bool operator==(const Status&) const = default;
};

struct ChannelDecision {
  std::uint32_t incarnation = 0;
  bool active = false;   // it restarts, or a round will admit it; false: it stays halted unless alive
  std::string reason{};  // why it is down
  std::vector<std::uint64_t> bases{};

  bool operator==(const ChannelDecision&) const = default;
};

struct PrepareRequest {
  std::uint32_t attempt = 0;
  RailSet alive = 0;

  bool operator==(const PrepareRequest&) const = default;
};

struct Decision {
  Commit committed{};  // the last commit
  std::vector<ChannelDecision> channels{};
  std::optional<PrepareRequest> prepare{};  // of the next epoch

  bool operator==(const Decision&) const = default;
};

/// A rank is dead, or is finished and so are all others. Each rank passes the first copy on.
struct Goodbye {
  std::uint16_t rank = 0;
  bool dead = false;
  std::string reason{};

  bool operator==(const Goodbye&) const = default;
};

/// Asks whether the receiver is alive. An answer says that its sender is alive.
struct Inquiry {
  bool answer = false;

  bool operator==(const Inquiry&) const = default;
};

struct Stamped {
  Stamp stamp;
  std::variant<Status, Decision> state;

  bool operator==(const Stamped&) const = default;
};

using Body = std::variant<Heartbeat, Stamped, Goodbye, Inquiry>;

struct Datagram {
  std::uint64_t sequence = 0;  // on this rail from the sender to the receiver, from 1
  std::uint16_t sender = 0;
  std::uint8_t rail = 0;
  Body body{};

  bool operator==(const Datagram&) const = default;
};

/// Bounds of the fields.
struct Shape {
  int world_size;
  std::size_t rails;
};

/// The key for datagrams to a rank.
Key key_of(const Secret& secret, int receiver);
/// Appends the authentication code.
void append_code(std::vector<std::byte>& datagram, const Key& key);
/// Replaces the content of `to` by the datagram. Fields must fit `shape`. Long reasons are cut.
void encode(const Datagram& datagram, const Shape& shape, const Key& key, std::vector<std::byte>& to);
/// A decoded datagram fits `shape`. The caller must check for replays.
std::variant<Datagram, Refusal> decode(Bytes from, const Shape& shape, const Key& key);

}  // namespace railweave::recovery
