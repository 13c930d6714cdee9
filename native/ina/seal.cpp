// SPDX-License-Identifier: Apache-2.0
#include "ina/seal.hpp"

#if defined(__x86_64__)
#include <immintrin.h>
#endif

#include <span>
#include <stdexcept>
#include <string>

#include "ina/lanes.hpp"

namespace railweave::ina {
namespace {

constexpr std::uint32_t kSign = std::uint32_t{1} << 31;
constexpr std::uint64_t kMarks = 1, kCoefficients = 2, kPads = 3, kBindings = 4,
                        kMaxima = 5;      // the first word of `hash`
constexpr std::uint32_t kFieldBits = 10;  // of a count: 1,023 ranks
constexpr std::uint32_t kField = (1u << kFieldBits) - 1;

bool is_prime(std::uint32_t number) {
  if (number % 2 == 0) return number == 2;
  for (std::uint64_t divisor = 3; divisor * divisor <= number; divisor += 2)
    if (number % divisor == 0) return false;
  return number > 1;
}

/// A sum of products: the sum of their lower 32 bits and that of their upper 32 bits.
struct Sum {
  std::uint64_t low = 0, high = 0;
};
using Sums = std::array<Sum, kPrimes>;
using Coefficients = std::array<std::vector<std::uint32_t>, kPrimes>;

void multiply(const std::byte* lanes, std::size_t from, std::size_t to, const Coefficients& by, Sums& sums) {
  for (std::size_t i = from; i < to; ++i) {
    const std::uint32_t lane = static_cast<std::uint32_t>(load_lane(lanes, i)) ^ kSign;
    for (std::uint32_t j = 0; j < kPrimes; ++j) {
      const std::uint64_t product = std::uint64_t{by[j][i]} * lane;
      sums[j].low += static_cast<std::uint32_t>(product);
      sums[j].high += product >> 32;
    }
  }
}

constexpr std::size_t kVector = 8;  // lanes
#if defined(__x86_64__)
const bool kVectors = __builtin_cpu_supports("avx2");

struct VectorSum {
  __m256i whole;  // of products, modulo 2^64
  __m256i high;   // of their upper halves
};

[[gnu::target("avx2")]] inline __m256i load_vector(const void* from) {
  return _mm256_loadu_si256(static_cast<const __m256i*>(from));
}

/// Intrinsics are used because compilers unpack the factors. The multiplier reads the lower half of 64 bits
/// only, so odd lanes need a shift, and odd coefficients an address.
[[gnu::target("avx2")]]
void multiply_vectors(const std::byte* lanes, std::size_t count, const Coefficients& by, Sums& sums) {
  const __m256i swap = _mm256_set_epi32(0x0c0d0e0f, 0x08090a0b, 0x04050607, 0x00010203, 0x0c0d0e0f,
                                        0x08090a0b, 0x04050607, 0x00010203);
  const __m256i sign = _mm256_set1_epi32(static_cast<int>(kSign));
  std::array<VectorSum, kPrimes> parts{};
  for (std::size_t i = 0; i < count; i += kVector) {
    const __m256i even =
        _mm256_xor_si256(_mm256_shuffle_epi8(load_vector(lanes + i * kLaneBytes), swap), sign);
    const __m256i odd = _mm256_srli_epi64(even, 32);
    for (std::uint32_t j = 0; j < kPrimes; ++j) {
      const __m256i first = _mm256_mul_epu32(even, load_vector(by[j].data() + i));
      const __m256i second = _mm256_mul_epu32(odd, load_vector(by[j].data() + i + 1));
      parts[j].whole = _mm256_add_epi64(parts[j].whole, _mm256_add_epi64(first, second));
      parts[j].high = _mm256_add_epi64(
          parts[j].high, _mm256_add_epi64(_mm256_srli_epi64(first, 32), _mm256_srli_epi64(second, 32)));
    }
  }
  for (std::uint32_t j = 0; j < kPrimes; ++j) {
    for (int k = 0; k < 4; ++k) {
      const auto upper = static_cast<std::uint64_t>(parts[j].high[k]);
      sums[j].high += upper;
      sums[j].low += static_cast<std::uint64_t>(parts[j].whole[k]) - (upper << 32);
    }
  }
}
#else
constexpr bool kVectors = false;
void multiply_vectors(const std::byte*, std::size_t, const Coefficients&, Sums&) {}
#endif

/// The last words of the messages of pads: for each prime, the ring's edges to and from a rank, and the ring.
Hashes pad_terms(std::uint64_t rank, std::uint64_t world_size) {
  const std::array<std::uint64_t, 3> of{rank, (rank + 1) % world_size, world_size};
  static_assert(of.size() * kPrimes <= kHashesAtOnce);
  Hashes terms{};
  for (std::size_t i = 0; i < of.size(); ++i)
    for (std::uint64_t j = 0; j < kPrimes; ++j) terms[i * kPrimes + j] = j << 32 | of[i];
  return terms;
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
      terms_(pad_terms(rank_, world_size_)),
      primes_(seal_primes(world_size)) {
  if (lanes <= kSealLanes)
    throw std::invalid_argument("packets of " + std::to_string(lanes) +
                                " lanes have no room for data beside the " + std::to_string(kSealLanes) +
                                " of a seal: expected more lanes; raise --lanes of the controller");
  for (std::uint32_t prime = 0; prime < kPrimes; ++prime) {
    reciprocals_[prime] = ~std::uint64_t{0} / primes_[prime];
    std::uint64_t sum = 0;
    for (std::uint32_t lane = 0; lane < tagged_; ++lane) {
      const std::uint64_t coefficient = hash(kCoefficients, prime, lane, 0) % primes_[prime];
      coefficients_[prime].push_back(static_cast<std::uint32_t>(coefficient));
      sum += coefficient;
    }
    coefficients_[prime].resize((tagged_ + kVector - 1) / kVector * kVector + 1);
    offset_[prime] =
        static_cast<std::uint32_t>(primes_[prime] - sum % primes_[prime] * kSign % primes_[prime]);
  }
}

/// Without a division. The quotient is at most 1 too small.
std::uint32_t Seal::reduce(std::uint64_t value, std::uint32_t prime) const {
  __extension__ using Product = unsigned __int128;
  const auto quotient = static_cast<std::uint64_t>(Product{value} * reciprocals_[prime] >> 64);
  const std::uint64_t rest = value - quotient * primes_[prime];
  return static_cast<std::uint32_t>(rest < primes_[prime] ? rest : rest - primes_[prime]);
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

/// Vectors may reach into the tags, where coefficients are 0.
Residues Seal::linear(const std::byte* lanes) const {
  Sums sums;
  const std::size_t vectors = kVectors ? (tagged_ + kPrimes) / kVector * kVector : 0;
  multiply_vectors(lanes, vectors, coefficients_, sums);
  multiply(lanes, vectors, tagged_, coefficients_, sums);
  Residues out;
  for (std::uint32_t j = 0; j < kPrimes; ++j) {
    const std::uint64_t high = reduce(std::uint64_t{reduce(sums[j].high, j)} << 32, j);
    out[j] = reduce(high + reduce(sums[j].low, j) + offset_[j], j);
  }
  return out;
}

/// The terms of the ring's edges to and from this rank, and the common term, which rank 0's pad includes.
Pads Seal::pads(std::uint64_t chunk, std::uint64_t bound) const {
  const Hashes terms = keyed_hashes(key_, {kPads, chunk, bound}, terms_);
  Pads pads;
  for (std::uint32_t j = 0; j < kPrimes; ++j) {
    const std::uint64_t in = reduce(terms[j], j), out = reduce(terms[kPrimes + j], j);
    pads.all[j] = reduce(terms[2 * kPrimes + j], j);
    pads.own[j] = reduce(in + primes_[j] - out + (rank_ == 0 ? pads.all[j] : 0), j);
  }
  return pads;
}

void Seal::close(std::byte* lanes, const Counts& counts, const Pads& pads) const {
  const std::uint32_t fields =
      counts.agreeing | counts.nonfinite << kFieldBits | counts.overflowing << (2 * kFieldBits);
  store_lane(lanes, tagged_ - 1, static_cast<std::int32_t>(fields));
  const Residues hash = linear(lanes);
  for (std::uint32_t j = 0; j < kPrimes; ++j)
    store_lane(lanes, tagged_ + j,
               static_cast<std::int32_t>(reduce(std::uint64_t{hash[j]} + pads.own[j], j)));
}

bool Seal::holds(const std::byte* lanes, const Pads& pads, bool without_own) const {
  const Residues hash = linear(lanes), own = without_own ? pads.own : Residues{};
  bool equal = true;
  for (std::uint32_t j = 0; j < kPrimes; ++j) {
    const std::uint64_t tag = static_cast<std::uint32_t>(load_lane(lanes, tagged_ + j));
    equal &= reduce(tag + own[j], j) == reduce(std::uint64_t{hash[j]} + pads.all[j], j);
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
