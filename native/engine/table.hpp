// SPDX-License-Identifier: Apache-2.0
// Match tables. Exact matches use a hash table, and longest-prefix matches one hash table per prefix length.
// Ternary and range matches scan the entries in the order of their rank. Tables with many entries use
// tuple space search instead.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <functional>
#include <memory>
#include <queue>
#include <unordered_map>
#include <vector>

#include "engine/entry.hpp"
#include "engine/plan.hpp"
#include "engine/tuple_space.hpp"

namespace railweave::engine {

class Table {
 public:
  Table(const TablePlan& plan, std::uint32_t parameter_words);

  /// Gives actions at least this many words of parameters from now on.
  void reserve_parameters(std::uint32_t words);

  /// The entry that matches the key of `plan().words` words, or nullptr. Packets of a burst ask for the same
  /// keys one after the other, so the last answer is kept.
  [[gnu::always_inline]] Entry* lookup(const std::uint64_t* key, std::size_t words) {
    if (last_.known && std::equal(key, key + words, last_.key.data())) return last_.entry;
    return look_up(key);
  }
  Entry* lookup(const std::uint64_t* key) { return lookup(key, plan_.words); }

  /// Adds an entry and gives its handle. Throws std::length_error when full, std::invalid_argument.
  std::uint64_t insert(Match match, std::uint32_t action, std::vector<std::uint64_t> parameters);
  void modify(std::uint64_t handle, std::uint32_t action, std::vector<std::uint64_t> parameters);
  void remove(std::uint64_t handle);
  Entry& entry(std::uint64_t handle);  // throws std::out_of_range

  /// Sets a selector group; entries name it as the parameter of kGroup. An empty group is removed.
  void set_group(std::uint32_t group, std::vector<Choice> choices);
  /// The choice for a hash, or nullptr if there is no such group.
  const Choice* choose(std::uint64_t group, std::uint64_t hash) const {
    if (group >= selectors_.size() || selectors_[group].empty()) return nullptr;
    return &selectors_[group][hash % selectors_[group].size()];
  }

  /// The action of a miss; kNone: none.
  void set_default(std::uint32_t action, std::vector<std::uint64_t> parameters);
  const Entry& fallback() const { return default_; }
  const TablePlan& plan() const { return plan_; }
  std::size_t size() const { return entries_.size(); }

 private:
  struct Answer {
    bool known = false;
    Entry* entry = nullptr;
    std::array<std::uint64_t, 4> key;  // longer keys are not kept
  };

  /// Entries that share a mask, found by hash: open addressing, linear probing.
  struct Group {
    std::vector<std::uint64_t> mask;
    std::int64_t priority;
    std::vector<Entry*> slots;
    std::size_t used = 0;
  };

  Entry* look_up(const std::uint64_t* key);
  bool matches(const Entry& entry, const std::uint64_t* key) const;
  Entry* scan(const std::uint64_t* key) const;
  Entry* find(const Group& group, const std::uint64_t* key) const;
  void add_ternary(Entry* entry);
  void remove_ternary(Entry* entry);
  void choose_way();
  std::size_t slot_of(const Group& group, const std::uint64_t* key) const;
  void place(Group& group, Entry* entry) const;
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
  std::vector<Entry*> ordered_;          // ternary: the best first, while there are not too many
  std::vector<std::uint64_t> patterns_;  // mask and value of each entry in `ordered_`
  TupleSpace space_;                     // ternary: all entries
  bool scans_ = true;                    // whether a scan of `ordered_` is faster than `space_`
  Entry default_;
  Answer last_;
  std::vector<std::vector<Choice>> selectors_;
};

}  // namespace railweave::engine
