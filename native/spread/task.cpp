// SPDX-License-Identifier: Apache-2.0
#include "spread/task.hpp"

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>
#include <limits>
#include <stdexcept>
#include <string>

namespace railweave::spread {
namespace {

std::uint32_t chunks_of(std::size_t bytes, std::size_t chunk_bytes) {
  if (chunk_bytes < 1 || chunk_bytes > kMostChunkBytes)
    throw std::invalid_argument("a chunk has 1 to " + std::to_string(kMostChunkBytes) + " bytes, not " +
                                std::to_string(chunk_bytes));
  const std::size_t chunks = bytes / chunk_bytes + (bytes % chunk_bytes != 0);
  if (chunks > std::numeric_limits<std::uint32_t>::max())
    throw std::invalid_argument("a shard has at most 2^32 - 1 chunks: " + std::to_string(bytes) +
                                " bytes are " + std::to_string(chunks) + " of " +
                                std::to_string(chunk_bytes));
  return static_cast<std::uint32_t>(chunks);
}

std::uint32_t shards_of(const Slice& slice) {
  const Collective collective = slice.call.collective;
  if (collective != Collective::kBroadcast && collective != Collective::kAllGather)
    throw std::invalid_argument("multicast carries broadcast and all_gather");
  if (slice.call.root >= slice.world_size) throw std::invalid_argument("the root is not a rank");
  return collective == Collective::kBroadcast ? 1 : static_cast<std::uint32_t>(slice.world_size);
}

}  // namespace

Mac code_of(const Key& key, std::uint64_t task, std::uint16_t source, std::uint32_t chunk, Bytes payload) {
  std::array<std::byte, sizeof task + sizeof source + sizeof chunk> name;
  store_fields(name.data(), task, source, chunk);
  return authenticate_named(key, name, payload);
}

Task::Task(std::uint64_t number, const Slice& slice, std::size_t chunk_bytes, int roots,
           const std::optional<Key>& key)
    : number_(number),
      slice_(slice),
      key_(key),
      chunk_bytes_(chunk_bytes),
      shard_bytes_(slice.count * item_size(slice.call.dtype)),
      chunks_(chunks_of(shard_bytes_, chunk_bytes)),
      own_(kNone),
      sources_(shards_of(slice)),
      words_((std::size_t{chunks_} + 63) / 64),
      bits_(words_ * sources_.size()) {
  own_ = shard_of(static_cast<std::uint32_t>(slice.rank));
  roots_ = std::min(static_cast<std::uint32_t>(roots), shards());
  if (chunks_ == 0) complete_ = ended_ = shards();
  if (own_ != kNone)
    packets_ = std::make_unique_for_overwrite<std::byte[]>(
        chunks_ * (ina::kHeaderBytes + (key ? kCodeBytes : 0)) + shard_bytes_);
}

std::uint32_t Task::shard_of(std::uint32_t rank) const {
  if (slice_.call.collective == Collective::kBroadcast) return rank == slice_.call.root ? 0 : kNone;
  return rank < shards() ? rank : kNone;
}

std::uint16_t Task::rank_of(std::uint32_t shard) const {
  return slice_.call.collective == Collective::kBroadcast ? slice_.call.root
                                                          : static_cast<std::uint16_t>(shard);
}

std::uint32_t Task::senders() const {
  const std::uint32_t first = own_ / roots_ * roots_;  // of the shards that are sent at the same time
  const std::uint32_t together = std::min(roots_, shards() - first);
  return together < shards() || shards() == 1 ? together : shards() - 1;
}

std::size_t Task::chunk_size(std::uint32_t chunk) const {
  return std::min(chunk_bytes_, shard_bytes_ - chunk * chunk_bytes_);
}

std::byte* Task::output(std::uint32_t shard, std::uint32_t chunk) const {
  const std::size_t shards_before = shard * slice_.stride * item_size(slice_.call.dtype);
  return slice_.output + shards_before + chunk * chunk_bytes_;
}

std::byte* Task::packet(std::uint32_t chunk) const {
  return packets_.get() + chunk * (ina::kHeaderBytes + chunk_bytes_ + (key_ ? kCodeBytes : 0));
}

bool Task::placed(std::uint32_t shard, std::uint32_t chunk) const {
  return bits_[shard * words_ + chunk / 64] >> chunk % 64 & 1;
}

bool Task::place(std::uint32_t shard, std::uint32_t chunk, Bytes payload) {
  if (complete(shard) || placed(shard, chunk)) return false;
  std::memcpy(output(shard, chunk), payload.data(), payload.size());
  count(shard, chunk);
  return true;
}

void Task::count(std::uint32_t shard, std::uint32_t chunk) {
  Source& source = sources_[shard];
  bits_[shard * words_ + chunk / 64] |= std::uint64_t{1} << chunk % 64;
  const bool before = ended(shard);
  source.frontier = std::max(source.frontier, chunk + 1);
  ended_ += ended(shard) && !before;
  complete_ += ++source.count == chunks_;
}

/// Peers are answered from the copy once the input is the caller's again.
Bytes Task::build_next(std::uint16_t group, std::uint8_t child) {
  const std::uint32_t chunk = frontier(own_);
  const std::size_t size = chunk_size(chunk);
  std::byte* const to = packet(chunk);
  ina::encode({.kind = static_cast<std::uint8_t>(ina::Kind::kSpread),
               .group = group,
               .child = child,
               .slot = rank_of(own_),
               .round = chunk,
               .mark = static_cast<std::uint32_t>(number_)},
              to);
  const std::byte* const from = slice_.input + chunk * chunk_bytes_;
  std::memcpy(to + ina::kHeaderBytes, from, size);
  if (output(own_, chunk) != from) std::memcpy(output(own_, chunk), from, size);
  count(own_, chunk);
  std::byte* const end = to + ina::kHeaderBytes + size;
  if (!key_) return {to, end};
  const Bytes payload(to + ina::kHeaderBytes, size);
  return {to, std::ranges::copy(code_of(*key_, number_, rank_of(own_), chunk, payload), end).out};
}

Bytes Task::payload(std::uint32_t shard, std::uint32_t chunk) const {
  const std::byte* const at = shard == own_ ? packet(chunk) + ina::kHeaderBytes : output(shard, chunk);
  return {at, chunk_size(chunk)};
}

bool Task::has(std::uint32_t shard, Range range) const {
  const std::uint64_t end = std::uint64_t{range.first} + range.count;
  if (shard == own_) return end <= frontier(shard);
  return !released_ && seek(shard, /*placed=*/false, range.first, end) == end;
}

/// The first chunk from `from` on that is in place, or that is missing; `end` if no such chunk comes before.
std::uint64_t Task::seek(std::uint32_t shard, bool placed, std::uint64_t from, std::uint64_t end) const {
  while (from < end) {
    const std::uint64_t word = bits_[shard * words_ + from / 64];
    const std::uint64_t found = (placed ? word : ~word) >> from % 64;
    if (found != 0) return std::min(end, from + static_cast<std::uint64_t>(std::countr_zero(found)));
    from = (from | 63) + 1;
  }
  return end;
}

Range Task::gap(std::uint32_t shard, std::uint32_t from, std::uint32_t limit) const {
  const std::uint64_t first = seek(shard, /*placed=*/false, from, limit);
  if (first == limit || from >= limit) return {};
  const std::uint64_t most = std::min(first + kMostFetched, std::uint64_t{std::max(limit, frontier(shard))});
  const std::uint64_t end = seek(shard, /*placed=*/true, first, most);
  return {static_cast<std::uint32_t>(first), static_cast<std::uint32_t>(end - first)};
}

bool Task::ended(std::uint32_t shard) const {
  const std::uint64_t frontier = sources_[shard].frontier;
  return chunks_ == 0 || (frontier > 0 && frontier + kLastChunks > chunks_);
}

bool Task::over() const { return ended_ == shards() && (own_ == kNone || complete(own_)); }

void Task::release_output() {
  released_ = true;
  bits_ = {};
}

}  // namespace railweave::spread
