// SPDX-License-Identifier: Apache-2.0
// Tells a rank that is late from a path that is dead: while results stay out, probes go to the first switch
// and to the root, which answer by themselves. They are network control, so that they pass queues of data.
// Where answers are late all the same, as processes wait for CPUs, the longest silence that ended lately says
// how long the next one may be.
//
// A probe's mark is a code of its number, so that only what has seen the probe can answer it. An answer
// counts once.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <optional>

#include "core/bytes.hpp"
#include "core/longest_lately.hpp"
#include "core/secret.hpp"
#include "core/time.hpp"
#include "core/timing.hpp"
#include "ina/packet.hpp"

namespace railweave::ina {

/// Why a tree brings no results: probes stay unanswered, or the switch has a wrong sum. The root's answer
/// crosses the first switch, so that one is never alone.
struct Stalled {
  bool first_switch_ok;
  bool root_ok;
  bool spoilt = false;  // a result does not have the ranks' seal, however often it is asked for
};

/// What an answer to a probe says.
enum class ProbeAnswer : std::uint8_t { kNew, kLate, kUnsent };

class Prober {
 public:
  /// `key` is this rank's alone; nothing: marks are 0.
  explicit Prober(const std::optional<Key>& key) : key_(key) {}

  /// Nothing came for a timeout: a probe of each kind is due.
  void silence(Time now) {
    for (Target* target : {&first_switch_, &root_}) {
      target->due = true;
      if (target->silent_since == kNever) target->silent_since = now;
    }
  }
  /// A result came.
  void alive(Time now) {
    hear(first_switch_, now);
    hear(root_, now);
  }
  /// Forgets what is under way: the group has moved.
  void reset() {
    for (Target* target : {&first_switch_, &root_}) {
      forget(*target);
      target->due = false;
      target->sent_at = kNever;
    }
  }

  /// The next probe that is due; empty if none. Its bytes stay until the next one to the same target.
  Bytes transmit(std::uint16_t group, std::uint8_t child, Time now) {
    if (!first_switch_.due && !root_.due) return {};
    const bool to_root = !first_switch_.due;
    Target& target = to_root ? root_ : first_switch_;
    target.due = false;
    target.sent_at = now;
    ++target.unanswered;
    encode({.kind = static_cast<std::uint8_t>(Kind::kProbe),
            .group = group,
            .child = child,
            .flags = to_root ? flag::kToRoot : std::uint8_t{0},
            .round = ++target.number,
            .mark = mark_of(to_root, target.number)},
           target.packet.data());
    return target.packet;
  }
  /// `round_trip` is set for a new answer.
  ProbeAnswer receive(const Header& header, Time now, Duration& round_trip) {
    const bool from_root = (header.flags & flag::kToRoot) != 0;
    Target& target = from_root ? root_ : first_switch_;
    const auto age = static_cast<std::int32_t>(target.number - header.round);
    if (age < 0 || header.round == 0 || header.mark != mark_of(from_root, header.round))
      return ProbeAnswer::kUnsent;
    if (static_cast<std::int32_t>(header.round - target.answered) <= 0) return ProbeAnswer::kLate;
    target.answered = header.round;
    if (from_root) {
      alive(now);
    } else {
      hear(first_switch_, now);
    }
    if (age > 0 || target.sent_at == kNever) return ProbeAnswer::kLate;
    round_trip = now - target.sent_at;
    target.sent_at = kNever;
    return ProbeAnswer::kNew;
  }

  /// What has been silent for `least` or, where more ended lately, 5/2 of that, and for several probes;
  /// nothing if the root answers.
  std::optional<Stalled> stalled(Time now, Duration least) const {
    const Duration lately = ended_.get(now) * timing::kGapFactor / timing::kGapDivisor;
    const Duration limit = std::max(least, std::min(lately, kMostSilence));
    if (!dead(root_, now, limit)) return std::nullopt;
    return Stalled{.first_switch_ok = !dead(first_switch_, now, limit), .root_ok = false};
  }

 private:
  // Answers cross every link of a path twice: at 5 % loss and three links one in four is lost.
  static constexpr std::uint32_t kUnanswered = 6;
  static constexpr Duration kMostSilence = 2 * kSecond;  // a longer one was an outage, and teaches nothing

  /// Probes of one kind. Their numbers count up and come back in the answer.
  struct Target {
    bool due = false;
    std::uint32_t number = 0;
    std::uint32_t answered = 0;  // the newest number that has come back
    Time sent_at = kNever;       // of the newest, while its answer is out
    std::uint32_t unanswered = 0;
    Time silent_since = kNever;
    std::array<std::byte, kHeaderBytes> packet{};
  };

  std::uint32_t mark_of(bool to_root, std::uint32_t number) const {
    if (!key_) return 0;
    std::array<std::byte, sizeof number + 1> said;
    store_fields(said.data(), number, static_cast<std::uint8_t>(to_root));
    return static_cast<std::uint32_t>(keyed_hash(*key_, said));
  }
  static bool dead(const Target& target, Time now, Duration limit) {
    return target.silent_since != kNever && now - target.silent_since >= limit &&
           target.unanswered >= kUnanswered;
  }
  static void forget(Target& target) {
    target.silent_since = kNever;
    target.unanswered = 0;
  }
  void hear(Target& target, Time now) {
    const Duration silence = target.silent_since == kNever ? 0 : now - target.silent_since;
    if (silence < kMostSilence) ended_.add(silence, now);
    forget(target);
  }

  const std::optional<Key> key_;
  Target first_switch_;
  Target root_;
  LongestLately ended_{timing::kMemory};
};

}  // namespace railweave::ina
