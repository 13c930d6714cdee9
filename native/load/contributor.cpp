// SPDX-License-Identifier: Apache-2.0
#include "load/contributor.hpp"

#include <algorithm>

#include "ina/packet.hpp"

namespace railweave::load {

namespace {

constexpr std::uint32_t kMark = 0x10ad10ad;
constexpr std::uint64_t kNoChunk = ~std::uint64_t{0};

/// The finaliser of MurmurHash3. Any function works if its values differ in every bit position.
std::uint32_t mix(std::uint32_t x) {
  x = (x ^ x >> 16) * 0x85ebca6b;
  x = (x ^ x >> 13) * 0xc2b2ae35;
  return x ^ x >> 16;
}

}  // namespace

Numbers::Numbers(unsigned workers, unsigned lanes)
    : workers_(workers), row_bytes_(lanes * ina::kLaneBytes), rows_((workers + 1) * kRows * row_bytes_) {
  for (std::uint32_t place = 0; place < kRows * lanes; ++place) {
    const auto lane_of = [&](unsigned who) {
      return &rows_[(who * kRows * lanes + place) * ina::kLaneBytes];
    };
    std::uint32_t sum = 0;
    for (unsigned worker = 0; worker < workers; ++worker) {
      const std::uint32_t value = mix(place + worker * 0x9e3779b9u);
      store_be(lane_of(worker), value);
      sum += value;
    }
    store_be(lane_of(workers), sum);
  }
}

Contributor::Contributor(const Group& group, const Numbers& numbers, unsigned worker)
    : group_(group), numbers_(numbers), worker_(worker), answered_(group.slots) {}

Run Contributor::next(unsigned most) {
  if (const Run run = next_repeated(most); run.count != 0) return run;
  if (next_ + most > lowest_ + group_.slots) return {};
  const Run run{next_, most};
  next_ += most;
  repeat_from_ = next_;
  return run;
}

Run Contributor::next_repeated(unsigned most) {
  std::uint64_t first = std::max(repeat_from_, lowest_);
  while (first < next_ && answered_[first % group_.slots]) ++first;
  Run run{first, 0};
  while (run.count < most && first < next_ && !answered_[first % group_.slots]) ++first, ++run.count;
  repeat_from_ = first;
  repeated_ += run.count;
  return run;
}

void Contributor::write_header(std::uint64_t chunk, std::byte* to) const {
  const std::uint64_t copy = chunk / group_.slots % 2;
  ina::encode({.kind = static_cast<std::uint8_t>(ina::Kind::kContribute),
               .group = group_.number,
               .child = static_cast<std::uint8_t>(worker_),
               .slot = static_cast<std::uint16_t>(2 * (chunk % group_.slots) + copy),
               .round = group_.first_round + static_cast<std::uint32_t>(chunk / (2 * group_.slots)),
               .mark = kMark},
              to);
}

std::uint64_t Contributor::chunk_of(std::uint16_t slot, std::uint32_t round) const {
  const std::uint32_t rounds = round - group_.first_round;
  if (slot / 2u >= group_.slots || rounds > next_ / (2 * group_.slots)) return kNoChunk;
  return (2ull * rounds + slot % 2u) * group_.slots + slot / 2u;
}

Contributor::Answer Contributor::receive(Bytes datagram) {
  const std::size_t lane_bytes = group_.lanes * ina::kLaneBytes;
  if (datagram.size() != ina::kHeaderBytes + lane_bytes) return Answer::kStranger;
  const ina::Header header = ina::decode(datagram.data());
  if (header.kind != static_cast<std::uint8_t>(ina::Kind::kResult) || header.group != group_.number) {
    return Answer::kStranger;
  }
  const std::uint64_t chunk = chunk_of(header.slot, header.round);
  if (chunk < lowest_ || chunk >= next_ || answered_[chunk % group_.slots]) return Answer::kAgain;
  const Bytes expected = group_.echo ? lanes(chunk) : numbers_.sum(chunk);
  if (header.flags != 0 || header.mark != kMark ||
      std::memcmp(datagram.data() + ina::kHeaderBytes, expected.data(), lane_bytes) != 0) {
    return Answer::kWrong;
  }
  answered_[chunk % group_.slots] = true;
  while (lowest_ < next_ && answered_[lowest_ % group_.slots]) answered_[lowest_++ % group_.slots] = false;
  return Answer::kRight;
}

}  // namespace railweave::load
