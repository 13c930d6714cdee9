// SPDX-License-Identifier: Apache-2.0
// Keeps a peer up to date with this side's state, whatever datagrams are lost: the newest state is repeated
// until the peer has seen its number.
#pragma once

#include <algorithm>
#include <cstdint>

#include "core/time.hpp"
#include "recovery/datagram.hpp"

namespace railweave::recovery {

/// What one peer has seen of this side's states, and this side of the peer's. States are numbered from 1; the
/// state 0 is what everybody knows from the start.
class Line {
 public:
  /// Whether what comes with this stamp is newer than all before. `serial`: of this side's newest state.
  bool take(const Stamp& stamp, std::uint32_t serial) {
    acked_ = std::max(acked_, std::min(stamp.seen, serial));
    owes_ = owes_ || stamp.answer;
    if (stamp.serial <= seen_) return false;
    seen_ = stamp.serial;
    send_soon();
    return true;
  }
  /// Something is new on either side: it goes at once. What is merely repeated, by this side or the other,
  /// waits for its time, or each of the copies that go on several rails would be answered, and each answer
  /// again.
  void send_soon() { next_ = 0; }
  bool due(std::uint32_t serial, Time now) const { return now >= deadline(serial); }
  Time deadline(std::uint32_t serial) const { return owes_ || acked_ != serial ? next_ : kNever; }
  Stamp sent(std::uint32_t serial, Time next) {
    owes_ = false;
    next_ = next;
    return {.serial = serial, .seen = seen_, .answer = acked_ != serial};
  }

 private:
  std::uint32_t acked_ = 0;
  std::uint32_t seen_ = 0;
  bool owes_ = false;  // the peer waits for an answer
  Time next_ = 0;
};

}  // namespace railweave::recovery
