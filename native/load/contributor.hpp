// SPDX-License-Identifier: Apache-2.0
// One host of a closed loop that loads a switch with the aggregation program: what it sends next, and whether
// what comes back is right. No I/O.
#pragma once

#include <cstdint>
#include <vector>

#include "core/bytes.hpp"

namespace railweave::load {

/// The group that all hosts of a run belong to. Chunk k uses slot k mod slots, copy (k div slots) mod 2 and
/// round first_round + k div (2 · slots); at most `slots` chunks of a host are on their way.
struct Group {
  std::uint16_t number = 1;
  std::uint32_t slots = 64;
  std::uint32_t first_round = 0;  // later than that of every run before on the same slots
  unsigned lanes = 256;
  unsigned workers = 2;
  bool echo = false;  // what comes back is a host's own contribution
};

/// Lanes of contributions, and of their sums, in network order. They repeat after kRows chunks, which is no
/// multiple of any number of slots: a slot's successive rounds differ.
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
  std::vector<std::byte> rows_;  // of each worker, then of the sums
};

/// Consecutive chunks that leave as one super-packet.
struct Run {
  std::uint64_t first = 0;
  unsigned count = 0;
};

class Contributor {
 public:
  /// `numbers` must outlive the contributor; `group.slots` must be a power of two.
  Contributor(const Group& group, const Numbers& numbers, unsigned worker);

  /// What to send now: `most` new chunks once that many are within the window, or up to `most` of those that
  /// are to be repeated. Count 0: nothing.
  Run next(unsigned most);
  void write_header(std::uint64_t chunk, std::byte* to) const;
  Bytes lanes(std::uint64_t chunk) const { return numbers_.contribution(worker_, chunk); }

  enum class Answer { kRight, kWrong, kAgain, kStranger };
  /// Takes a datagram: the result of a chunk on its way, right or wrong; one that is there already, or of an
  /// earlier run; or no result of this group at all.
  Answer receive(Bytes datagram);

  /// Nothing has come for a while: `next` gives all that has no answer once more.
  void repeat() { repeat_from_ = lowest_; }

  std::uint64_t repeated() const { return repeated_; }

 private:
  std::uint64_t chunk_of(std::uint16_t slot, std::uint32_t round) const;
  Run next_repeated(unsigned most);

  Group group_;
  const Numbers& numbers_;
  unsigned worker_;
  std::uint64_t lowest_ = 0;  // without a result
  std::uint64_t next_ = 0;    // not sent yet
  std::uint64_t repeat_from_ = 0;
  std::uint64_t repeated_ = 0;
  std::vector<bool> answered_;  // of the chunks from `lowest_`, by chunk mod slots
};

}  // namespace railweave::load
