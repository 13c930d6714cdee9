// SPDX-License-Identifier: Apache-2.0
// Unsolicited items for the control plane: messages of the program (log_msg, failed assertions), digests, and
// packets that left through the CPU port.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <utility>
#include <vector>

#include "core/bytes.hpp"

namespace railweave::engine {

/// A number of a message or a trace, least significant word first.
struct NotedValue {
  std::vector<std::uint64_t> words;
  bool negative = false;
};

/// A message by its number in the plan, with its values.
struct LogRecord {
  std::uint32_t message;
  std::vector<NotedValue> values;
};

/// Bounded in number, bytes and rate: a flood of packets fills neither the switch's memory nor a log file.
class Messages {
 public:
  static constexpr std::size_t kMaxRecords = 4096;
  static constexpr std::size_t kMaxWords = 1u << 20;           // of values
  static constexpr std::uint64_t kPeriodUs = 10'000;           // between messages, in the long run
  static constexpr std::uint64_t kBurstUs = 4096 * kPeriodUs;  // that many messages may come at once

  /// The values of the message, or of the note of a trace, that comes next.
  std::vector<NotedValue> values;
  /// Whether log_msg is kept; failed assertions always are.
  bool enabled = false;

  /// Whether there is room for a message now. Messages without room are counted. GCRA limits the rate
  /// (ITU-T I.371).
  bool admit(std::uint64_t now_us) {
    if (records_.size() < kMaxRecords && words_ < kMaxWords && due_us_ < now_us + kBurstUs) return true;
    ++lost_;
    return false;
  }

  /// A message that was admitted, with the values that have been collected.
  void add(std::uint32_t message, std::uint64_t now_us) {
    due_us_ = std::max(due_us_, now_us) + kPeriodUs;
    for (const NotedValue& value : values) words_ += value.words.size();
    records_.push_back({message, std::move(values)});
    values.clear();
  }

  /// All messages since the last call, oldest first, and how many were lost for lack of room.
  std::pair<std::vector<LogRecord>, std::uint64_t> take() {
    words_ = 0;
    return {std::exchange(records_, {}), std::exchange(lost_, 0)};
  }

 private:
  std::vector<LogRecord> records_;
  std::size_t words_ = 0;
  std::uint64_t due_us_ = 0;  // when the next message is due at the greatest rate
  std::uint64_t lost_ = 0;
};

/// Bounded in number and bytes, so that a slow control plane does not fill the switch's memory. Items without
/// room are dropped and counted.
class Notices {
 public:
  static constexpr std::size_t kMaxItems = 4096;
  static constexpr std::size_t kMaxBytes = 4u << 20;

  struct Item {
    std::uint32_t list = 0;  // of a digest
    std::vector<std::byte> bytes;
  };

  /// False if there was no room.
  bool add(std::uint32_t list, Bytes bytes) {
    if (items_.size() >= kMaxItems || bytes_ + bytes.size() > kMaxBytes) {
      ++dropped_;
      return false;
    }
    items_.push_back({list, {bytes.begin(), bytes.end()}});
    bytes_ += bytes.size();
    return true;
  }

  std::deque<Item> take() {
    bytes_ = 0;
    return std::exchange(items_, {});
  }

  bool empty() const { return items_.empty(); }
  std::uint64_t dropped() const { return dropped_; }

 private:
  std::deque<Item> items_;
  std::size_t bytes_ = 0;
  std::uint64_t dropped_ = 0;
};

}  // namespace railweave::engine
