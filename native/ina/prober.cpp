// SPDX-License-Identifier: Apache-2.0
#include "ina/prober.hpp"

namespace railweave::ina {
namespace {

// Answers cross every link of a path twice: at 5 % loss and three links one in four is lost.
constexpr std::uint32_t kUnanswered = 6;

}  // namespace

void Prober::silence(Time now) {
  for (Target* target : {&first_switch_, &root_}) {
    target->due = true;
    if (target->silent_since == kNever) target->silent_since = now;
  }
}

void Prober::hear(Target& target) {
  target.silent_since = kNever;
  target.unanswered = 0;
}

void Prober::alive() {
  hear(first_switch_);
  hear(root_);
}

void Prober::reset() {
  for (Target* target : {&first_switch_, &root_}) {
    hear(*target);
    target->due = false;
    target->sent_at = kNever;
  }
}

Bytes Prober::transmit(std::uint16_t group, std::uint8_t child, Time now) {
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
          .round = ++target.number},
         target.packet.data());
  return target.packet;
}

ProbeAnswer Prober::receive(const Header& header, Time now, Duration& round_trip) {
  const bool from_root = (header.flags & flag::kToRoot) != 0;
  Target& target = from_root ? root_ : first_switch_;
  const auto age = static_cast<std::int32_t>(target.number - header.round);
  if (age < 0 || header.round == 0) return ProbeAnswer::kUnsent;
  if (from_root) {
    alive();
  } else {
    hear(first_switch_);
  }
  if (age > 0 || target.sent_at == kNever) return ProbeAnswer::kLate;
  round_trip = now - target.sent_at;
  target.sent_at = kNever;
  return ProbeAnswer::kNew;
}

bool Prober::dead(const Target& target, Time now, Duration limit) {
  return target.silent_since != kNever && now - target.silent_since >= limit &&
         target.unanswered >= kUnanswered;
}

std::optional<Stalled> Prober::stalled(Time now, Duration limit) const {
  if (!dead(root_, now, limit)) return std::nullopt;
  return Stalled{.first_switch_ok = !dead(first_switch_, now, limit), .root_ok = false};
}

}  // namespace railweave::ina
