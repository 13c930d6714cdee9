// SPDX-License-Identifier: Apache-2.0
// Match tables: exact by hash, longest prefix by one hash per prefix length, ternary and range by a scan
// of the entries in the order of their priority.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <queue>
#include <span>
#include <unordered_map>
#include <vector>

#include "engine/plan.hpp"

namespace railweave::engine {

struct CounterValue {
  std::uint64_t packets = 0;
  std::uint64_t bytes = 0;
};

/// One rate of a meter: tokens per microsecond and the size of its bucket.
struct MeterRate {
  double tokens_per_us = 0;
  std::uint64_t burst = 0;
};

/// An inclusive range on `width` bits of a key word, from bit `shift`.
struct KeyRange {
  std::uint32_t word, shift, width;
  std::uint64_t low, high;
};

/// What an entry matches: key & mask == value, and all ranges hold.
struct Match {
  std::vector<std::uint64_t> value;
  std::vector<std::uint64_t> mask;
  std::vector<KeyRange> ranges;
  std::int64_t priority = 0;  // greater wins; of an LPM table: the prefix length
};

/// An action with its parameters, padded with zeros to the plan's parameter_words.
struct Choice {
  std::uint32_t action = 0;
  std::vector<std::uint64_t> parameters;
};

struct Entry {
  std::uint64_t handle = 0;
  Match match;
  std::uint32_t action = 0;
  std::vector<std::uint64_t> parameters;  // padded with zeros to the plan's parameter_words
  CounterValue counter;
  std::uint32_t slot = 0;  // lowest free index below the table's size: of the direct meter, and BMv2's order
  std::uint64_t timeout_us = 0;  // 0: never idle too long
  std::uint64_t last_hit_us = 0, reported_us = ~0ull;
};

class Table {
 public:
  Table(const TablePlan& plan, std::uint32_t parameter_words);

  /// Goes on with another plan of the same table: other code, perhaps more parameter words.
  void adopt(const TablePlan& plan, std::uint32_t parameter_words);

  /// The entry that matches the key of `plan().words` words, or nullptr.
  Entry* lookup(const std::uint64_t* key);

  /// Adds an entry and gives its handle. Throws std::length_error when full, std::invalid_argument.
  std::uint64_t insert(Match match, std::uint32_t action, std::vector<std::uint64_t> parameters);
  void modify(std::uint64_t handle, std::uint32_t action, std::vector<std::uint64_t> parameters);
  void remove(std::uint64_t handle);
  Entry& entry(std::uint64_t handle);  // throws std::out_of_range

  /// A selector group; entries name it as the parameter of kGroup. Empty: the group goes.
  void set_group(std::uint32_t group, std::vector<Choice> choices);
  /// The choice for a hash, or nullptr if there is no such group.
  const Choice* choose(std::uint64_t group, std::uint64_t hash) const {
    if (group >= selectors_.size() || selectors_[group].empty()) return nullptr;
    return &selectors_[group][hash % selectors_[group].size()];
  }

  /// Entries idle for their time-out at `now_us`, each once until it is hit again.
  std::vector<std::uint64_t> expired(std::uint64_t now_us);

  /// The action of a miss; kNone: none.
  void set_default(std::uint32_t action, std::vector<std::uint64_t> parameters);
  const Entry& fallback() const { return default_; }
  const TablePlan& plan() const { return plan_; }
  std::size_t size() const { return entries_.size(); }

 private:
  /// Entries that share a mask, found by hash: open addressing, linear probing.
  struct Group {
    std::vector<std::uint64_t> mask;
    std::int64_t priority;
    std::vector<Entry*> slots;
    std::size_t used = 0;
  };

  bool matches(const Entry& entry, const std::uint64_t* key) const;
  Entry* scan(const std::uint64_t* key) const;
  Entry* find(const Group& group, const std::uint64_t* key) const;
  static std::uint64_t hash(std::span<const std::uint64_t> key, const std::uint64_t* mask);
  static void place(Group& group, Entry* entry);
  void add_to_group(Entry* entry);
  void remove_from_group(Entry* entry);
  void check(std::uint32_t action, std::vector<std::uint64_t>& parameters) const;

  TablePlan plan_;
  std::uint32_t parameter_words_;
  std::uint64_t next_handle_ = 1;
  std::unordered_map<std::uint64_t, std::unique_ptr<Entry>> entries_;
  std::priority_queue<std::uint32_t, std::vector<std::uint32_t>, std::greater<>> free_slots_;
  std::uint32_t next_slot_ = 0;
  std::vector<Group> groups_;            // exact: one; LPM: longest prefix first
  std::vector<Entry*> ordered_;          // ternary: greatest priority first, then by slot, as BMv2
  std::vector<std::uint64_t> patterns_;  // value and mask of each of these, side by side
  Entry default_;
  std::vector<std::vector<Choice>> selectors_;
};

}  // namespace railweave::engine
