// SPDX-License-Identifier: Apache-2.0
// Writes and reads fields in sequence, in network order. After missing bytes or an impossible value a reader
// returns zeros, and `whole` returns false.
#pragma once

#include <algorithm>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "core/bytes.hpp"

namespace railweave::recovery {

class Writer {
 public:
  explicit Writer(std::vector<std::byte>& to) : to_(to) { to_.clear(); }

  template <typename T>
  void put(T value) {
    to_.resize(to_.size() + sizeof value);
    store_be(to_.data() + to_.size() - sizeof value, value);
  }
  /// Writes a length byte, then the text, cut to `most` bytes.
  void text(std::string_view text, std::size_t most) {
    const std::size_t size = std::min(text.size(), most);
    put(static_cast<std::uint8_t>(size));
    for (std::size_t i = 0; i < size; ++i) put(static_cast<std::uint8_t>(text[i]));
  }

 private:
  std::vector<std::byte>& to_;
};

class Reader {
 public:
  explicit Reader(Bytes from) : left_(from) {}

  template <typename T>
  T get() {
    if (left_.size() < sizeof(T)) {
      refuse();
      return T{};
    }
    const T value = load_be<T>(left_.data());
    left_ = left_.subspan(sizeof(T));
    return value;
  }
  /// A value of at most `most`.
  template <typename T>
  T get(std::uint64_t most) {
    const T value = get<T>();
    if (value <= most) return value;
    refuse();
    return T{};
  }
  /// Replaces bytes that are not printable ASCII by question marks.
  std::string text(std::size_t most) {
    std::string text(get<std::uint8_t>(most), '?');
    for (char& letter : text) {
      const auto byte = get<std::uint8_t>();
      if (byte >= 0x20 && byte < 0x7f) letter = static_cast<char>(byte);
    }
    return text;
  }
  void refuse() {
    refused_ = true;
    left_ = {};
  }
  bool refused() const { return refused_; }
  /// Whether all bytes have been read and all values were possible.
  bool whole() const { return !refused_ && left_.empty(); }

 private:
  Bytes left_;
  bool refused_ = false;
};

}  // namespace railweave::recovery
