// SPDX-License-Identifier: Apache-2.0
#include "ina/seal.hpp"

#include <span>
#include <stdexcept>
#include <string>

#include "core/simd.hpp"
#include "ina/lanes.hpp"

namespace railweave::ina {
namespace {

constexpr std::uint32_t kSign = std::uint32_t{1} << 31;
constexpr std::uint64_t kMarks = 1, kCoefficients = 2, kPads = 3, kBindings = 4,
                        kMaxima = 5;      // what `hash` is of
constexpr std::uint32_t kFieldBits = 10;  // of a count: 1,023 ranks
constexpr std::uint32_t kField = (1u << kFieldBits) - 1;

bool is_prime(std::uint32_t number) {
  if (number % 2 == 0) return number == 2;
  for (std::uint64_t divisor = 3; divisor * divisor <= number; divisor += 2)
    if (number % divisor == 0) return false;
  return number > 1;
}

/// Both halves of a lane times a coefficient, so that sums over all lanes fit in 64 bits.
struct Halves {
  std::uint64_t low = 0, high = 0;
};

RAILWEAVE_SIMD
void multiply(const std::byte* lanes, std::uint32_t count, const std::uint32_t* a, const std::uint32_t* b,
              const std::uint32_t* c, std::array<Halves, kPrimes>& sums) {
  Halves first, second, third;
  for (std::uint32_t i = 0; i < count; ++i) {
    const std::uint32_t lane = static_cast<std::uint32_t>(load_lane(lanes, i)) ^ kSign;
    const std::uint32_t low = lane & 0xffff, high = lane >> 16;
    first.low += std::uint64_t{a[i]} * low;
    first.high += std::uint64_t{a[i]} * high;
    second.low += std::uint64_t{b[i]} * low;
    second.high += std::uint64_t{b[i]} * high;
    third.low += std::uint64_t{c[i]} * low;
    third.high += std::uint64_t{c[i]} * high;
  }
  sums = {first, second, third};
}

}  // namespace

std::array<std::uint32_t, kPrimes> seal_primes(int world_size) {
  std::array<std::uint32_t, kPrimes> primes;
  auto candidate =
      static_cast<std::uint32_t>((std::uint64_t{1} << 32) / static_cast<std::uint64_t>(world_size) - 1);
  for (std::uint32_t& prime : primes) {
    while (!is_prime(candidate)) --candidate;
    prime = candidate--;
  }
  return primes;
}

Seal::Seal(const Secret& secret, std::uint64_t tree, int rank, int world_size, std::uint32_t lanes)
    : key_(derive_key(secret, "ina", tree)),
      content_key_(derive_key(secret, "ina content", tree)),
      rank_(static_cast<std::uint64_t>(rank)),
      world_size_(static_cast<std::uint64_t>(world_size)),
      tagged_(lanes - kPrimes),
      primes_(seal_primes(world_size)) {
  if (lanes <= kSealLanes)
    throw std::invalid_argument("packets of " + std::to_string(lanes) +
                                " lanes have no room for data beside the " + std::to_string(kSealLanes) +
                                " of a seal: expected more lanes; raise --lanes of the controller");
  for (std::uint32_t prime = 0; prime < kPrimes; ++prime) {
    std::uint64_t sum = 0;
    for (std::uint32_t lane = 0; lane < tagged_; ++lane) {
      const std::uint64_t coefficient = hash(kCoefficients, prime, lane, 0) % primes_[prime];
      coefficients_[prime].push_back(static_cast<std::uint32_t>(coefficient));
      sum += coefficient;
    }
    offset_[prime] = primes_[prime] - sum % primes_[prime] * kSign % primes_[prime];
  }
}

std::uint64_t Seal::hash(std::uint64_t of, std::uint64_t a, std::uint64_t b, std::uint64_t c) const {
  const std::array<std::uint64_t, 4> message{of, a, b, c};
  return keyed_hash(key_, std::as_bytes(std::span(message)));
}

std::uint64_t Seal::identity(const MessageLabel& label, Item item) const {
  std::array<std::byte, kLabelSize + 5> message;
  store_fields(store_label(message.data(), label), item.phase, item.index);
  return keyed_hash(content_key_, message);
}

std::uint64_t Seal::bind(std::uint64_t identity, std::uint64_t to) const {
  return hash(kBindings, identity, to, 0);
}

std::uint64_t Seal::digest(std::uint32_t chunk, const std::byte* lanes) const {
  const std::size_t bytes = std::size_t{tagged_ - 1} * kLaneBytes;
  return hash(kBindings, chunk, keyed_hash(content_key_, {lanes, bytes}), 1);
}

std::uint32_t Seal::mark(std::uint64_t chunk, std::uint64_t identity) const {
  const std::uint64_t item = identity & 0xffff;
  return static_cast<std::uint32_t>(item << 16 | (hash(kMarks, chunk, item, 0) & 0xffff));
}

bool Seal::by_member(std::uint64_t chunk, std::uint32_t mark) const {
  return this->mark(chunk, mark >> 16) == mark;
}

Seal::Residues Seal::linear(const std::byte* lanes) const {
  std::array<Halves, kPrimes> sums;
  multiply(lanes, tagged_, coefficients_[0].data(), coefficients_[1].data(), coefficients_[2].data(), sums);
  Residues out;
  for (std::uint32_t j = 0; j < kPrimes; ++j) {
    const std::uint64_t prime = primes_[j];
    out[j] = ((sums[j].high % prime << 16) + sums[j].low % prime + offset_[j]) % prime;
  }
  return out;
}

Seal::Residues Seal::term(std::uint64_t chunk, std::uint64_t bound, std::uint64_t rank) const {
  Residues out;
  for (std::uint32_t j = 0; j < kPrimes; ++j)
    out[j] = hash(kPads, chunk, bound, std::uint64_t{j} << 32 | rank) % primes_[j];
  return out;
}

/// Of this rank: the terms of the ring's edges to it and from it, and, of rank 0, that of all together.
Seal::Residues Seal::pad(std::uint64_t chunk, std::uint64_t bound) const {
  const Residues in = term(chunk, bound, rank_), out = term(chunk, bound, (rank_ + 1) % world_size_);
  const Residues all = rank_ == 0 ? term(chunk, bound, total()) : Residues{};
  Residues pad;
  for (std::uint32_t j = 0; j < kPrimes; ++j) pad[j] = (in[j] + primes_[j] - out[j] + all[j]) % primes_[j];
  return pad;
}

void Seal::close(std::byte* lanes, const Counts& counts, std::uint64_t chunk, std::uint64_t bound) const {
  const std::uint32_t fields =
      counts.agreeing | counts.nonfinite << kFieldBits | counts.overflowing << (2 * kFieldBits);
  store_lane(lanes, tagged_ - 1, static_cast<std::int32_t>(fields));
  const Residues hash = linear(lanes), own = pad(chunk, bound);
  for (std::uint32_t j = 0; j < kPrimes; ++j)
    store_lane(lanes, tagged_ + j, static_cast<std::int32_t>((hash[j] + own[j]) % primes_[j]));
}

bool Seal::holds(const std::byte* lanes, std::uint64_t chunk, std::uint64_t bound, bool without_own) const {
  const Residues hash = linear(lanes), all = term(chunk, bound, total());
  const Residues own = without_own ? pad(chunk, bound) : Residues{};
  bool equal = true;
  for (std::uint32_t j = 0; j < kPrimes; ++j) {
    const std::uint64_t tag = static_cast<std::uint32_t>(load_lane(lanes, tagged_ + j));
    equal &= (tag + own[j]) % primes_[j] == (hash[j] + all[j]) % primes_[j];
  }
  return equal;
}

std::int32_t Seal::tag(std::uint64_t chunk, std::uint32_t lane, std::int32_t value) const {
  constexpr std::uint64_t kMask = (1u << kMaximumTagBits) - 1;
  return static_cast<std::int32_t>(hash(kMaxima, chunk, lane, static_cast<std::uint32_t>(value)) & kMask);
}

void Seal::tag_maxima(std::byte* lanes, std::uint32_t count, std::uint64_t chunk) const {
  for (std::uint32_t i = 0; i < count; ++i) {
    const std::int32_t value = load_lane(lanes, i);
    store_lane(lanes, i, value | tag(chunk, i, value >> kMaximumTagBits));
  }
}

bool Seal::tagged(const std::byte* lanes, std::uint32_t count, std::uint64_t chunk) const {
  bool all = true;
  for (std::uint32_t i = 0; i < count; ++i) {
    const std::int32_t value = load_lane(lanes, i) >> kMaximumTagBits;
    all &= load_lane(lanes, i) == (value << kMaximumTagBits | tag(chunk, i, value));
  }
  return all;
}

Counts Seal::counts(const std::byte* lanes) const {
  const auto fields = static_cast<std::uint32_t>(load_lane(lanes, tagged_ - 1));
  return {.agreeing = fields & kField,
          .nonfinite = fields >> kFieldBits & kField,
          .overflowing = fields >> (2 * kFieldBits) & kField};
}

}  // namespace railweave::ina
