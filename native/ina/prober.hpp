// SPDX-License-Identifier: Apache-2.0
// Tells a rank that is late from a path that is dead: while results stay out, probes go to the first switch
// and to the root, which answer by themselves.
#pragma once

#include <array>
#include <cstdint>
#include <optional>

#include "core/bytes.hpp"
#include "core/time.hpp"
#include "ina/packet.hpp"

namespace railweave::ina {

/// Where probes stay unanswered. The root's answer crosses the first switch, so that one is never alone.
struct Stalled {
  bool first_switch_ok;
  bool root_ok;
};

/// What an answer to a probe says.
enum class ProbeAnswer : std::uint8_t { kNew, kLate, kUnsent };

class Prober {
 public:
  /// Nothing came for a timeout: a probe of each kind is due.
  void silence(Time now);
  /// A result came.
  void alive();
  /// Forgets what is under way: the group has moved.
  void reset();

  /// The next probe that is due; empty if none. Its bytes stay until the next one to the same target.
  Bytes transmit(std::uint16_t group, std::uint8_t child, Time now);
  /// `round_trip` is set for a new answer.
  ProbeAnswer receive(const Header& header, Time now, Duration& round_trip);

  /// What has been silent for `limit`, and for several probes; nothing if the root answers.
  std::optional<Stalled> stalled(Time now, Duration limit) const;

 private:
  /// Probes of one kind. Their numbers count up and come back in the answer.
  struct Target {
    bool due = false;
    std::uint32_t number = 0;
    Time sent_at = kNever;  // of the newest, while its answer is out
    std::uint32_t unanswered = 0;
    Time silent_since = kNever;
    std::array<std::byte, kHeaderBytes> packet{};
  };

  static bool dead(const Target& target, Time now, Duration limit);
  static void hear(Target& target);

  Target first_switch_;
  Target root_;
};

}  // namespace railweave::ina
