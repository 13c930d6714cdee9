// SPDX-License-Identifier: Apache-2.0
// What is to be sent, each on every rail.
#pragma once

#include <cstdint>
#include <deque>
#include <optional>
#include <utility>
#include <vector>

#include "recovery/datagram.hpp"
#include "recovery/types.hpp"

namespace railweave::recovery {

class Outbox {
 public:
  Outbox(int rank, const Shape& shape) : rank_(rank), shape_(shape) {}

  void push(int rank, Body body) {
    Due& due = due_.emplace_back();
    due.rank = rank;
    due.datagram.sender = static_cast<std::uint16_t>(rank_);
    due.datagram.body = std::move(body);
  }
  void clear() { due_.clear(); }
  bool empty() const { return due_.empty(); }
  /// The bytes stay until the next call.
  std::optional<Outgoing> next() {
    if (due_.empty()) return std::nullopt;
    Due& due = due_.front();
    encode(due.datagram, shape_, bytes_);
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
    Datagram datagram{};  // its rail is the next one that it goes on
  };

  int rank_;
  Shape shape_;
  std::deque<Due> due_;
  std::vector<std::byte> bytes_;
};

}  // namespace railweave::recovery
