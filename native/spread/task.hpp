// SPDX-License-Identifier: Apache-2.0
// One rank's state of a broadcast or allgather: which chunks of which shard are in place, and the own shard
// as packets.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "core/bytes.hpp"
#include "core/secret.hpp"
#include "core/slice.hpp"
#include "ina/packet.hpp"

namespace railweave::spread {

/// Size of the code behind a chunk, where packets have codes.
inline constexpr std::size_t kCodeBytes = sizeof(Mac);
inline constexpr std::size_t kMostChunkBytes =
    65535 - 20 - 8 - ina::kHeaderBytes - kCodeBytes;  // of a UDP datagram
/// The most chunks for which one FETCH may ask. It bounds the cost of a forged FETCH.
inline constexpr std::uint32_t kMostFetched = 1024;
/// Each of this many chunks at the end of a shard lets the next rank of the chain begin. This hides the delay
/// between both ranks, and one of these chunks may be lost.
inline constexpr std::uint32_t kLastChunks = 4;

/// Chunks of one shard.
struct Range {
  std::uint32_t first = 0;
  std::uint32_t count = 0;
};

/// A chunk's code. It does not cover the sender, because a peer that has the chunk may answer with it.
Mac code_of(const Key& key, std::uint64_t task, std::uint16_t source, std::uint32_t chunk, Bytes payload);

/// Shards are numbered by their rank in an allgather. A broadcast has only shard 0, the root's.
class Task {
 public:
  /// `roots` is how many ranks send at once. `key` is that of the packets' codes, if they have any. Throws
  /// std::invalid_argument for other collectives, for chunk sizes that no packet has, and for more chunks
  /// than the header can number.
  Task(std::uint64_t number, const Slice& slice, std::size_t chunk_bytes, int roots,
       const std::optional<Key>& key);

  std::uint64_t number() const { return number_; }
  std::uint64_t slice_id() const { return slice_.id; }
  std::uint32_t chunks() const { return chunks_; }
  std::uint32_t shards() const { return static_cast<std::uint32_t>(sources_.size()); }
  std::uint32_t roots() const { return roots_; }
  /// How many shards a link carries at once while the own shard is sent. Nobody receives its own shard.
  std::uint32_t senders() const;
  /// The shard of a rank; kNone for a rank that sends nothing.
  static constexpr std::uint32_t kNone = ~std::uint32_t{0};
  std::uint32_t shard_of(std::uint32_t rank) const;
  std::uint16_t rank_of(std::uint32_t shard) const;
  std::uint32_t own() const { return own_; }
  std::size_t chunk_size(std::uint32_t chunk) const;

  /// Puts a chunk of another rank in its place; false if it was there already.
  bool place(std::uint32_t shard, std::uint32_t chunk, Bytes payload);
  /// Builds the packet of the own shard's next chunk; it stays until the task ends.
  Bytes build_next(std::uint16_t group, std::uint8_t child);
  /// A chunk that is in place, or a chunk of the own shard that is built.
  Bytes payload(std::uint32_t shard, std::uint32_t chunk) const;
  bool has(std::uint32_t shard, Range range) const;

  /// One past the last chunk that has come or was sent.
  std::uint32_t frontier(std::uint32_t shard) const { return sources_[shard].frontier; }
  /// This rank has asked for the gaps before this chunk, as they appeared.
  std::uint32_t& judged(std::uint32_t shard) { return sources_[shard].judged; }
  /// The first gap at or after `from` that begins before `limit`. Its count is 0 if there is no gap.
  Range gap(std::uint32_t shard, std::uint32_t from, std::uint32_t limit) const;

  bool complete(std::uint32_t shard) const { return sources_[shard].count == chunks_; }
  bool complete() const { return complete_ == shards(); }
  /// Whether the shard's sender is at its end, as far as this rank knows.
  bool ended(std::uint32_t shard) const;
  /// Whether every sender is at its end, and this rank has sent its shard. Then the next task may begin.
  bool over() const;
  /// Whether it is the shard's turn in its chain.
  bool due(std::uint32_t shard) const { return shard < roots_ || ended(shard - roots_); }

  /// From now on the output is the caller's.
  void release_output();
  bool released() const { return released_; }

 private:
  /// Progress of one shard: chunks that have come, or that were sent of the own shard.
  struct Source {
    std::uint32_t frontier = 0;
    std::uint32_t judged = 0;
    std::uint32_t count = 0;
  };

  std::byte* output(std::uint32_t shard, std::uint32_t chunk) const;
  std::byte* packet(std::uint32_t chunk) const;
  bool placed(std::uint32_t shard, std::uint32_t chunk) const;
  std::uint64_t seek(std::uint32_t shard, bool placed, std::uint64_t from, std::uint64_t end) const;
  void count(std::uint32_t shard, std::uint32_t chunk);

  std::uint64_t number_;
  Slice slice_;
  std::optional<Key> key_;
  std::size_t chunk_bytes_;
  std::size_t shard_bytes_;
  std::uint32_t chunks_;  // of a shard
  std::uint32_t own_;
  std::uint32_t roots_;
  std::vector<Source> sources_;
  std::uint32_t ended_ = 0;     // shards
  std::uint32_t complete_ = 0;  // shards
  bool released_ = false;
  std::size_t words_;                // of a shard's bitmap
  std::vector<std::uint64_t> bits_;  // chunks in place
  std::unique_ptr<std::byte[]> packets_;
};

}  // namespace railweave::spread
