// SPDX-License-Identifier: Apache-2.0
// Ternary and range matches by tuple space search (V. Srinivasan, S. Suri, G. Varghese: Packet Classification
// using Tuple Space Search, SIGCOMM 1999). Entries with the same mask lie in one hash table. A look-up probes
// the tables in the order of their best entries. It ends when no remaining table can have a better one.
//
// Entries of a table with the same masked value differ in ranges or rank. They form an interval tree: a treap
// over the low ends of their first range. Every node knows the highest end and the best entry of its subtree.
//
// Memory is linear in the number of entries. A look-up takes time for each table and for each interval that
// holds the key. Hostile entries can make it as slow as a scan.
#pragma once

#include <cstdint>
#include <deque>
#include <set>
#include <span>
#include <unordered_map>
#include <vector>

#include "engine/entry.hpp"

namespace railweave::engine {

/// Which of two entries wins if both match: the greater priority, then, as in BMv2, the lower slot.
struct Better {
  bool operator()(const Entry* a, const Entry* b) const {
    const auto first = a->match.priority, second = b->match.priority;
    return first != second ? first > second : a->slot < b->slot;
  }
};

class TupleSpace {
 public:
  explicit TupleSpace(std::uint32_t key_words) : words_(key_words) {}

  void add(Entry* entry);
  void remove(Entry* entry);  // which is in it
  Entry* lookup(const std::uint64_t* key) const;
  std::size_t tuples() const { return tuples_.size(); }
  std::size_t size() const { return nodes_.size() - free_nodes_.size(); }

 private:
  struct Node {
    Entry* entry;
    std::uint64_t low, high;  // of the first range; all values without a range
    std::uint64_t highest;    // end at or below this node
    Entry* best;              // entry at or below this node
    std::uint64_t heap;       // random: greater ones lie above
    Node *left = nullptr, *right = nullptr;
  };
  /// Entries with one mask: open addressing, linear probing, a treap per masked value.
  struct Tuple {
    const std::uint64_t* mask;
    std::set<const Entry*, Better> ranked;
    std::vector<Node*> slots;
    std::size_t used = 0;
  };

  /// A table with its best entry, whose rank is repeated here so that a look-up need not go and see.
  struct Ranked {
    std::int64_t priority;
    std::uint32_t slot;
    Tuple* tuple;
    bool operator<(const Ranked& other) const {
      return priority != other.priority ? priority > other.priority : slot < other.slot;
    }
  };
  struct MaskHash {
    std::size_t operator()(const std::vector<std::uint64_t>& mask) const;
  };

  void rank(Tuple& tuple);
  void unrank(Tuple& tuple);
  std::size_t slot_of(const Tuple& tuple, const std::uint64_t* value) const;
  void grow(Tuple& tuple) const;
  void close_gap(Tuple& tuple, std::size_t hole) const;

  /// The range that orders a treap: the first, unless it is wider than a word.
  static const KeyRange* first_range(const Entry& entry);
  static void update(Node* node);
  static Node* insert(Node* root, Node* node);
  static Node* erase(Node* root, const Entry* entry, std::uint64_t low, Node*& gone);
  static Node* merge(Node* a, Node* b);
  static void split(Node* root, const Node& at, Node*& left, Node*& right);
  static void search(const Node* node, std::uint64_t number, const std::uint64_t* key, Entry*& best);
  static bool before(const Node& a, std::uint64_t low, const Entry* entry);

  std::uint32_t words_;
  std::unordered_map<std::vector<std::uint64_t>, Tuple, MaskHash> by_mask_;
  std::vector<Ranked> tuples_;  // that of the best entry first
  std::deque<Node> nodes_;
  std::vector<Node*> free_nodes_;
  std::uint64_t random_ = 0x9e3779b97f4a7c15;
};

/// -1, 0, 1: how the words of a key from `ranges[0].word` on compare with those of a bound.
inline int compare_wide(std::span<const KeyRange> ranges, std::uint64_t KeyRange::* bound,
                        const std::uint64_t* key) {
  for (std::size_t i = ranges.size(); i-- > 0;) {
    const std::uint64_t have = key[ranges[0].word + i], limit = ranges[i].*bound;
    if (have != limit) return have < limit ? -1 : 1;
  }
  return 0;
}

/// Whether a key that agrees with the entry's value under its mask lies in its ranges, too.
inline bool in_ranges(const Match& match, const std::uint64_t* key) {
  for (std::size_t i = 0; i < match.ranges.size(); ++i) {
    const KeyRange& range = match.ranges[i];
    if (range.width > 64) [[unlikely]] {
      const auto words = std::span(match.ranges).subspan(i, (range.width + 63) / 64);
      if (compare_wide(words, &KeyRange::low, key) < 0) return false;
      if (compare_wide(words, &KeyRange::high, key) > 0) return false;
      i += words.size() - 1;
      continue;
    }
    const std::uint64_t value = (key[range.word] >> range.shift) & (~0ull >> (64 - range.width));
    if (value < range.low || value > range.high) return false;
  }
  return true;
}

}  // namespace railweave::engine
