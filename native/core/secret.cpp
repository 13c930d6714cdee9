// SPDX-License-Identifier: Apache-2.0
#include "core/secret.hpp"

#include <sodium.h>

#include <algorithm>
#include <array>
#include <bit>
#include <stdexcept>
#include <string>

#include "core/simd.hpp"

namespace railweave {
namespace {

static_assert(sizeof(Key) == crypto_shorthash_siphashx24_KEYBYTES);
static_assert(sizeof(Key) == crypto_shorthash_siphash24_KEYBYTES);
static_assert(sizeof(Mac) == crypto_shorthash_siphashx24_BYTES);

const unsigned char* raw(const std::byte* bytes) { return reinterpret_cast<const unsigned char*>(bytes); }
unsigned char* raw(std::byte* bytes) { return reinterpret_cast<unsigned char*>(bytes); }

const int kStarted = sodium_init();  // chooses what this CPU does fastest

/// The state of SipHash, for several messages.
struct SipState {
  Hashes a, b, c, d;

  [[gnu::always_inline]] void round(std::size_t j) {
    a[j] += b[j];
    c[j] += d[j];
    b[j] = std::rotl(b[j], 13) ^ a[j];
    d[j] = std::rotl(d[j], 16) ^ c[j];
    a[j] = std::rotl(a[j], 32) + d[j];
    c[j] += b[j];
    b[j] = std::rotl(b[j], 17) ^ c[j];
    d[j] = std::rotl(d[j], 21) ^ a[j];
    c[j] = std::rotl(c[j], 32);
  }
  [[gnu::always_inline]] void take(std::uint64_t word, std::size_t j) {
    d[j] ^= word;
    round(j);
    round(j);
    a[j] ^= word;
  }
};

/// SipHash-2-4. The messages are independent, so that compilers vectorise the loops over them.
RAILWEAVE_SIMD
void sip_hashes(std::uint64_t low, std::uint64_t high, const std::array<std::uint64_t, 3>& begin,
                const Hashes& last, Hashes& out) {
  SipState state;
  state.a.fill(low ^ 0x736f6d6570736575);
  state.b.fill(high ^ 0x646f72616e646f6d);
  state.c.fill(low ^ 0x6c7967656e657261);
  state.d.fill(high ^ 0x7465646279746573);
  constexpr std::uint64_t kLength = std::uint64_t{4 * sizeof(std::uint64_t)} << 56;
  for (const std::uint64_t word : begin)
    for (std::size_t j = 0; j < kHashesAtOnce; ++j) state.take(word, j);
  for (std::size_t j = 0; j < kHashesAtOnce; ++j) state.take(last[j], j);
  for (std::size_t j = 0; j < kHashesAtOnce; ++j) state.take(kLength, j);
  for (std::size_t j = 0; j < kHashesAtOnce; ++j) {
    state.c[j] ^= 0xff;
    for (int round = 0; round < 4; ++round) state.round(j);
    out[j] = state.a[j] ^ state.b[j] ^ state.c[j] ^ state.d[j];
  }
}

}  // namespace

Key derive_key(const Secret& secret, std::string_view purpose, std::uint64_t part) {
  std::string message(purpose);
  message.push_back('\0');
  message.append(reinterpret_cast<const char*>(&part), sizeof part);
  Key key;
  crypto_generichash(raw(key.data()), key.size(), reinterpret_cast<const unsigned char*>(message.data()),
                     message.size(), raw(secret.data()), secret.size());
  return key;
}

Mac authenticate(const Key& key, Bytes message) {
  Mac mac;
  crypto_shorthash_siphashx24(raw(mac.data()), raw(message.data()), message.size(), raw(key.data()));
  return mac;
}

Mac authenticate_named(const Key& key, Bytes name, Bytes message) {
  std::array<Mac, 2> once;
  static_assert(sizeof once == crypto_onetimeauth_poly1305_KEYBYTES &&
                sizeof(Mac) == crypto_onetimeauth_poly1305_BYTES);
  std::array<std::byte, kMostName + 1> half;
  if (name.size() > kMostName) throw std::length_error("a name has up to 31 bytes");
  std::ranges::copy(name, half.begin());
  for (std::size_t i = 0; i < once.size(); ++i) {
    half[name.size()] = std::byte{static_cast<unsigned char>(i)};
    once[i] = authenticate(key, Bytes(half).first(name.size() + 1));
  }
  Mac mac;
  crypto_onetimeauth_poly1305(raw(mac.data()), raw(message.data()), message.size(), raw(once[0].data()));
  return mac;
}

Mac StreamCodes::next(Bytes head, std::size_t size) {
  std::array<std::byte, sizeof(std::uint64_t) + sizeof(std::uint32_t)> name;
  store_fields(name.data(), number_++, static_cast<std::uint32_t>(size));
  return authenticate_named(key_, name, head);
}

bool equal(const Mac& right, Bytes mac) {
  return mac.size() == right.size() && sodium_memcmp(right.data(), mac.data(), right.size()) == 0;
}

bool verify(const Key& key, Bytes message, Bytes mac) { return equal(authenticate(key, message), mac); }

std::uint64_t random_number() {
  std::uint64_t number;
  randombytes_buf(&number, sizeof number);
  return number;
}

std::uint64_t keyed_hash(const Key& key, Bytes message) {
  std::uint64_t hash;
  crypto_shorthash_siphash24(reinterpret_cast<unsigned char*>(&hash), raw(message.data()), message.size(),
                             raw(key.data()));
  return hash;
}

Hashes keyed_hashes(const Key& key, const std::array<std::uint64_t, 3>& begin, const Hashes& last) {
  const std::byte* const words = key.data();
  Hashes hashes;
  sip_hashes(load_le<std::uint64_t>(words), load_le<std::uint64_t>(words + sizeof(std::uint64_t)), begin,
             last, hashes);
  return hashes;
}

}  // namespace railweave
