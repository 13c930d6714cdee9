// SPDX-License-Identifier: Apache-2.0
// A job's secret, the keys that follow from it, and hashes that only its ranks can compute. The algorithms
// are libsodium's: BLAKE2b (RFC 7693) derives keys, SipHash-2-4 (Aumasson and Bernstein, 2012) hashes, and
// Poly1305 (Bernstein, 2005) hashes long messages.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "core/bytes.hpp"

namespace railweave {

inline constexpr std::size_t kSecretBytes = 32;
/// 256 random bits that all ranks of a job hold, and nobody else. It never travels on a rail.
using Secret = std::array<std::byte, kSecretBytes>;
/// The key of one purpose. Keys of different purposes say nothing about each other.
using Key = std::array<std::byte, 16>;
/// A message authentication code.
using Mac = std::array<std::byte, 16>;

/// Return the key for `purpose` (a few letters), and for one of its parts, such as a rail or a tree.
Key derive_key(const Secret& secret, std::string_view purpose, std::uint64_t part = 0);
/// Return the code of a message.
Mac authenticate(const Key& key, Bytes message);
/// Return the code of a long message in less time. No two messages may have the same name, which has up to
/// kMostName bytes: Poly1305's key, used once, is SipHash of the name.
Mac authenticate_named(const Key& key, Bytes name, Bytes message);
inline constexpr std::size_t kMostName = 31;
/// Compare in constant time.
bool equal(const Mac& right, Bytes mac);
/// Whether this is the message's code.
bool verify(const Key& key, Bytes message, Bytes mac);
/// Return 64 bits that nobody can guess.
std::uint64_t random_number();
/// Return 64 bits that look random to anyone without the key.
std::uint64_t keyed_hash(const Key& key, Bytes message);
inline constexpr std::size_t kHashesAtOnce = 12;
using Hashes = std::array<std::uint64_t, kHashesAtOnce>;
/// Return the `keyed_hash` of several messages of four words that differ in their last word. Vector
/// instructions take less than half the time.
Hashes keyed_hashes(const Key& key, const std::array<std::uint64_t, 3>& begin, const Hashes& last);

/// The codes of the messages that go one way on a connection. A message's number is part of its code, so that
/// no message can be repeated, moved or left out.
class StreamCodes {
 public:
  explicit StreamCodes(const Key& key) : key_(key) {}

  /// Return the code of the next message. It covers the message's head and size.
  Mac next(Bytes head, std::size_t size);
  /// Number the next messages again from the oldest of the latest `count`, which have not left.
  void take_back(std::size_t count) { number_ -= count; }

 private:
  Key key_;
  std::uint64_t number_ = 0;
};

}  // namespace railweave
