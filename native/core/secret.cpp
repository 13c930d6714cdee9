// SPDX-License-Identifier: Apache-2.0
#include "core/secret.hpp"

#include <sodium.h>

#include <string>

namespace railweave {
namespace {

static_assert(sizeof(Key) == crypto_shorthash_siphashx24_KEYBYTES);
static_assert(sizeof(Key) == crypto_shorthash_siphash24_KEYBYTES);
static_assert(sizeof(Mac) == crypto_shorthash_siphashx24_BYTES);

const unsigned char* raw(const std::byte* bytes) { return reinterpret_cast<const unsigned char*>(bytes); }
unsigned char* raw(std::byte* bytes) { return reinterpret_cast<unsigned char*>(bytes); }

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

}  // namespace railweave
