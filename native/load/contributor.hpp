// SPDX-License-Identifier: Apache-2.0
// One host of a closed loop that loads a switch with the aggregation program. It chooses the next
// contributions and checks the results. No I/O.
#pragma once

#include <cstdint>
#include <vector>

#include "core/bytes.hpp"

namespace railweave::load {

/// The group of all hosts of a run. Chunk k uses slot k mod slots, copy (k div slots) mod 2 and round
/// first_round + k div (2 · slots). At most `slots` chunks of a host are in flight.
struct Group {
  std::uint16_t number = 1;
  std::uint32_t slots = 64;
  std::uint32_t first_round = 0;  // greater than the rounds of all earlier runs on the same slots
  unsigned lanes = 256;
  unsigned workers = 2;
  bool echo = false;  // results are the host's own contributions
};

/// Lanes of contributions, and of their sums, in network order. They repeat after kRows chunks. No number of
/// slots divides kRows, so the successive rounds of a slot differ.
class Numbers {
 public:
  static constexpr std::uint64_t kRows = 31;

  Numbers(unsigned workers, unsigned lanes);

  Bytes contribution(unsigned worker, std::uint64_t chunk) const { return row(worker, chunk); }
  Bytes sum(std::uint64_t chunk) const { return row(workers_, chunk); }

 private:
  Bytes row(unsigned who, std::uint64_t chunk) const {
    return Bytes(rows_).subspan((who * kRows + chunk % kRows) * row_bytes_, row_bytes_);
  }

  unsigned workers_;
  std::size_t row_bytes_;
  std::vector<std::byte> rows_;  // one row set per worker, then the sums
};

/// Consecutive chunks in one super-packet.
struct Run {
  std::uint64_t first = 0;
  unsigned count = 0;
};

class Contributor {
 public:
  /// `numbers` must outlive the contributor; `group.slots` must be a power of two.
  Contributor(const Group& group, const Numbers& numbers, unsigned worker);

  /// Returns the chunks to send now: `most` new chunks if the window has room for that many, or up to `most`
  /// repeated chunks. Count 0: nothing.
  Run next(unsigned most);
  void write_header(std::uint64_t chunk, std::byte* to) const;
  Bytes lanes(std::uint64_t chunk) const { return numbers_.contribution(worker_, chunk); }

  enum class Answer { kRight, kWrong, kAgain, kStranger };
  /// Takes a datagram. kRight and kWrong: the result of a chunk in flight. kAgain: a repeated result, or from
  /// an earlier run. kStranger: no result of this group.
  Answer receive(Bytes datagram);

  /// Makes `next` repeat all unanswered chunks, because nothing has come for a while.
  void repeat() { repeat_from_ = lowest_; }

  std::uint64_t repeated() const { return repeated_; }

 private:
  std::uint64_t chunk_of(std::uint16_t slot, std::uint32_t round) const;
  Run next_repeated(unsigned most);

  Group group_;
  const Numbers& numbers_;
  unsigned worker_;
  std::uint64_t lowest_ = 0;  // first chunk without a result
  std::uint64_t next_ = 0;    // first chunk not sent yet
  std::uint64_t repeat_from_ = 0;
  std::uint64_t repeated_ = 0;
  std::vector<bool> answered_;  // of the chunks from `lowest_`, by chunk mod slots
};

}  // namespace railweave::load
