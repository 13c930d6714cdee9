// SPDX-License-Identifier: Apache-2.0
// The datagrams to send, each on every rail. The newest state is repeated until the peer has seen its number,
// so lost datagrams do no harm.
#pragma once

#include <algorithm>
#include <cstdint>
#include <deque>
#include <optional>
#include <utility>
#include <vector>

#include "core/time.hpp"
#include "recovery/datagram.hpp"
#include "recovery/types.hpp"

namespace railweave::recovery {

/// Which states one peer has seen from this side, and this side from the peer. Numbers of states begin with
/// 1. State 0 is the initial state, which everybody knows.
class Line {
 public:
  /// Returns whether the peer's state is newer than all earlier ones. `serial`: number of this side's newest
  /// state.
  bool take(const Stamp& stamp, std::uint32_t serial) {
    acked_ = std::max(acked_, std::min(stamp.seen, serial));
    owes_ = owes_ || stamp.answer;
    if (stamp.serial <= seen_) return false;
    seen_ = stamp.serial;
    send_soon();
    return true;
  }
  /// Sends at the next opportunity, because one side has a new state. Repetitions wait for their time.
  /// Otherwise each copy on each rail would get an answer, and each answer another answer.
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

class Outbox {
 public:
  Outbox(int rank, const Shape& shape, const Secret& secret)
      : rank_(rank),
        shape_(shape),
        secret_(secret),
        sent_(static_cast<std::size_t>(shape.world_size) * shape.rails) {}

  void push(int rank, Body body) {
    Due& due = due_.emplace_back();
    due.rank = rank;
    due.datagram.sender = static_cast<std::uint16_t>(rank_);
    due.datagram.body = std::move(body);
  }
  /// The number of the last datagram to a rank on a rail.
  std::uint64_t last_number(int rank, std::size_t rail) const {
    return sent_[static_cast<std::size_t>(rank) * shape_.rails + rail];
  }
  void clear() { due_.clear(); }
  bool empty() const { return due_.empty(); }
  /// The bytes are valid until the next call.
  std::optional<Outgoing> next() {
    if (due_.empty()) return std::nullopt;
    Due& due = due_.front();
    due.datagram.sequence = ++sent_[static_cast<std::size_t>(due.rank) * shape_.rails + due.datagram.rail];
    encode(due.datagram, shape_, key_of(secret_, due.rank), bytes_);
    const Outgoing outgoing{.rail = due.datagram.rail,
                            .rank = due.rank,
                            .heartbeat = std::holds_alternative<Heartbeat>(due.datagram.body),
                            .bytes = bytes_};
    if (++due.datagram.rail == shape_.rails) due_.pop_front();
    return outgoing;
  }

 private:
  struct Due {
    int rank = 0;
    Datagram datagram{};  // its rail is the next one to send on
  };

  int rank_;
  Shape shape_;
  Secret secret_;
  std::vector<std::uint64_t> sent_;  // last number by receiver and rail
  std::deque<Due> due_;
  std::vector<std::byte> bytes_;
};

}  // namespace railweave::recovery
