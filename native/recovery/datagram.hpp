// SPDX-License-Identifier: Apache-2.0
// What the recovery machines of a communicator's ranks send each other, over UDP on every rail.
//
// Each datagram has a number, against replay, and ends with a code over all that is before it. The code's key
// is the receiver's own, so no rank takes what was sent to another.
//
// Heartbeats go around the ring. Inquiries go to a rank at whose address nobody seems to listen any more.
// STATUS goes to rank 0; PREPARE and COMMIT come from it in its decision. Both
// are states, not messages. Each says all that its sender has to say, is numbered, and is repeated until the
// number has been seen.
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
inline constexpr std::size_t kMaxDatagram = 8192;  // bytes; with few rails far below an Ethernet frame's
inline constexpr std::size_t kMaxReason = 96;      // bytes of text
inline constexpr std::size_t kWindow = 64;         // ranks whose progress one heartbeat carries

/// How far a rank is. All three only grow.
struct Standing {
  std::uint32_t completed = 0;  // all calls before this one are complete
  std::uint32_t submitted = 0;  // all calls before this one have been submitted
  std::uint32_t tick = 0;       // of its last heartbeat

  bool operator==(const Standing&) const = default;
};

/// On all rails with the same tick, so that the receiver can hold one rail against another.
struct Heartbeat {
  std::uint32_t tick = 0;
  std::uint16_t first = 0;            // rank of the first entry; the window wraps around
  std::vector<Standing> standings{};  // as far as the sender knows; min(kWindow, world size) of them

  bool operator==(const Heartbeat&) const = default;
};

/// Which state this is, and which of the other's has been seen.
struct Stamp {
  std::uint32_t serial = 0;
  std::uint32_t seen = 0;
  bool answer = false;  // the sender repeats this until it is seen

  bool operator==(const Stamp&) const = default;
};

/// What has become of a rail's main channel on one rank.
enum class ChannelState : std::uint8_t { kUp, kHalting, kHalted, kRestarting, kPassed, kFailed };
inline constexpr std::size_t kChannelStates = 6;

struct ChannelStatus {
  ChannelState state = ChannelState::kUp;
  std::uint32_t incarnation = 0;
  bool unfit = false;                        // the sender does not hear it, or something stands in its way
  bool broken = false;                       // the main channel cannot go on by itself; then unfit as well
  std::string reason{};                      // why it is unfit
  std::vector<std::uint64_t> next_chunks{};  // when it was halted

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
  std::optional<Prepared> prepared{};  // on the way to epoch + 1

  bool operator==(const Status&) const = default;
};

struct ChannelDecision {
  std::uint32_t incarnation = 0;
  bool active = false;   // being restarted, or about to be admitted; else it stays halted unless alive
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
  Commit committed{};  // the last one
  std::vector<ChannelDecision> channels{};
  std::optional<PrepareRequest> prepare{};  // of the next

  bool operator==(const Decision&) const = default;
};

/// A rank is dead, or is done and all others with it; passed on by all that hear it for the first time.
struct Goodbye {
  std::uint16_t rank = 0;
  bool dead = false;
  std::string reason{};

  bool operator==(const Goodbye&) const = default;
};

/// Whether the receiver lives; or the answer, that the sender does.
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

/// What bounds the fields.
struct Shape {
  int world_size;
  std::size_t rails;
};

/// The key of what is sent to a rank.
Key key_of(const Secret& secret, int receiver);
/// Appends the code.
void append_code(std::vector<std::byte>& datagram, const Key& key);
/// Writes the datagram into `to`, whose old content goes. Fields must fit `shape`; long reasons are cut.
void encode(const Datagram& datagram, const Shape& shape, const Key& key, std::vector<std::byte>& to);
/// Whatever comes back fits `shape`. Replays are for the caller to find.
std::variant<Datagram, Refusal> decode(Bytes from, const Shape& shape, const Key& key);

}  // namespace railweave::recovery
