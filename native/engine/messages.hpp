// SPDX-License-Identifier: Apache-2.0
// Messages of the program: log_msg and failed assertions.
#pragma once

#include <cstdint>
#include <utility>
#include <vector>

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

class Messages {
 public:
  static constexpr std::size_t kMaxRecords = 4096;

  /// The values of the message, or of the note of a trace, that comes next.
  std::vector<NotedValue> values;
  /// Whether log_msg is kept; failed assertions always are.
  bool enabled = false;

  /// A message with the values that have been collected.
  void add(std::uint32_t message) {
    if (records_.size() < kMaxRecords) {
      records_.push_back({message, std::move(values)});
    } else {
      ++lost_;
    }
    values.clear();
  }

  /// All messages since the last call, oldest first, and how many were lost because nobody took them.
  std::pair<std::vector<LogRecord>, std::uint64_t> take() {
    return {std::exchange(records_, {}), std::exchange(lost_, 0)};
  }

 private:
  std::vector<LogRecord> records_;
  std::uint64_t lost_ = 0;
};

}  // namespace railweave::engine
