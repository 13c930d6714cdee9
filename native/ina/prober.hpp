// SPDX-License-Identifier: Apache-2.0
// Distinguishes a late rank from a dead path. While results are missing, probes go to the first switch and to
// the root, which answer without ranks. Probes are network control, so they pass queues of data. Answers may
// still be late where processes wait for CPUs. So the longest silence that ended lately bounds the next one.
//
// A probe's mark is a code of its number, so only somebody who has seen the probe can answer it. An answer
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

/// Why a tree brings no results: probes stay unanswered, or a switch has a wrong sum. The root's answer
/// crosses the first switch, so the first switch is never the only silent one.
struct Stalled {
  bool first_switch_ok;
  bool root_ok;
  bool spoilt = false;  // results do not have the ranks' seal, or damage may block a slot
};

/// Whether an answer is new, late, or of a probe that was never sent.
enum class ProbeAnswer : std::uint8_t { kNew, kLate, kUnsent };

class Prober {
 public:
  /// `key` is known to this rank only. Without a key, marks are 0.
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
  /// Forgets the probes under way, because the group has moved.
  void reset() {
    for (Target* target : {&first_switch_, &root_}) {
      forget(*target);
      target->due = false;
      target->sent_at = kNever;
    }
  }

  /// The next probe that is due, or nothing. Its bytes stay until the next probe to the same target.
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

  /// The silent targets, or nothing if the root answers. A silent target has not answered several probes for
  /// `least`, or for 5/2 of the longest silence that ended lately if that is longer.
  std::optional<Stalled> stalled(Time now, Duration least) const {
    const Duration lately = ended_.get(now) * timing::kGapFactor / timing::kGapDivisor;
    const Duration limit = std::max(least, std::min(lately, kMostSilence));
    if (!dead(root_, now, limit)) return std::nullopt;
    return Stalled{.first_switch_ok = !dead(first_switch_, now, limit), .root_ok = false};
  }

 private:
  // Answers cross every link of a path twice: at 5 % loss and three links one in four is lost.
  static constexpr std::uint32_t kUnanswered = 6;
  static constexpr Duration kMostSilence = 2 * kSecond;  // a longer one was an outage, which does not count

  /// Probes of one kind. Their numbers count up and come back in the answer.
  struct Target {
    bool due = false;
    std::uint32_t number = 0;
    std::uint32_t answered = 0;  // the newest number that has come back
    Time sent_at = kNever;       // of the newest probe, until its answer comes
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
