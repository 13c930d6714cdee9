// SPDX-License-Identifier: Apache-2.0
#include "engine/tuple_space.hpp"

#include <algorithm>

namespace railweave::engine {
namespace {

/// splitmix64 (S. Vigna): spreads equal inputs over the treaps.
std::uint64_t next_random(std::uint64_t& state) {
  std::uint64_t z = (state += 0x9e3779b97f4a7c15);
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9;
  z = (z ^ (z >> 27)) * 0x94d049bb133111eb;
  return z ^ (z >> 31);
}

}  // namespace

/// The slot of a masked value, or the empty one where it would go.
std::size_t TupleSpace::slot_of(const Tuple& tuple, const std::uint64_t* value) const {
  const std::size_t last = tuple.slots.size() - 1;
  for (std::size_t at = hash_key(value, tuple.mask, words_) & last;; at = (at + 1) & last) {
    if (tuple.slots[at] == nullptr) return at;
    const std::uint64_t* other = tuple.slots[at]->entry->match.value.data();
    std::uint64_t different = 0;
    for (std::size_t i = 0; i < words_; ++i) different |= (value[i] & tuple.mask[i]) ^ other[i];
    if (different == 0) return at;
  }
}

Entry* TupleSpace::lookup(const std::uint64_t* key) const {
  Entry* best = nullptr;
  for (const Ranked& next : tuples_) {
    if (best != nullptr && !(next < Ranked{best->match.priority, best->slot, nullptr})) break;
    const Node* root = next.tuple->slots[slot_of(*next.tuple, key)];
    if (root == nullptr) continue;
    const KeyRange* range = first_range(*root->entry);
    std::uint64_t number = 0;
    if (range != nullptr) number = (key[range->word] >> range->shift) & (~0ull >> (64 - range->width));
    search(root, number, key, best);
  }
  return best;
}

const KeyRange* TupleSpace::first_range(const Entry& entry) {
  const auto& ranges = entry.match.ranges;
  return ranges.empty() || ranges[0].width > 64 ? nullptr : &ranges[0];
}

/// Improves `best` by the entries at and below a node.
void TupleSpace::search(const Node* node, std::uint64_t number, const std::uint64_t* key, Entry*& best) {
  while (node != nullptr && node->highest >= number) {
    if (best != nullptr && !Better()(node->best, best)) return;
    if (in_ranges(node->best->match, key)) {
      best = node->best;
      return;
    }
    if (number < node->low) {
      node = node->left;
      continue;
    }
    if (in_ranges(node->entry->match, key) && (best == nullptr || Better()(node->entry, best))) {
      best = node->entry;
    }
    search(node->left, number, key, best);
    node = node->right;
  }
}

std::size_t TupleSpace::MaskHash::operator()(const std::vector<std::uint64_t>& mask) const {
  std::uint64_t state = mask.size();
  for (const std::uint64_t word : mask) state = next_random(state) ^ word;
  return next_random(state);
}

void TupleSpace::rank(Tuple& tuple) {
  const Entry& best = **tuple.ranked.begin();
  const Ranked ranked{best.match.priority, best.slot, &tuple};
  tuples_.insert(std::lower_bound(tuples_.begin(), tuples_.end(), ranked), ranked);
}

void TupleSpace::unrank(Tuple& tuple) {
  if (tuple.ranked.empty()) return;
  const Entry& best = **tuple.ranked.begin();
  const Ranked ranked{best.match.priority, best.slot, &tuple};
  tuples_.erase(std::lower_bound(tuples_.begin(), tuples_.end(), ranked));
}

void TupleSpace::add(Entry* entry) {
  const auto [at, made] = by_mask_.try_emplace(entry->match.mask);
  Tuple& tuple = at->second;
  if (made) {
    tuple.mask = at->first.data();
    tuple.slots.resize(8);
  }
  if (2 * (tuple.used + 1) > tuple.slots.size()) grow(tuple);  // half empty: every probe ends soon
  Node* node = nullptr;
  if (free_nodes_.empty()) {
    node = &nodes_.emplace_back();
  } else {
    node = free_nodes_.back();
    free_nodes_.pop_back();
  }
  const KeyRange* range = first_range(*entry);
  *node = {
      entry,  range ? range->low : 0, range ? range->high : ~0ull, 0, nullptr, next_random(random_), nullptr,
      nullptr};
  update(node);
  Node*& root = tuple.slots[slot_of(tuple, entry->match.value.data())];
  if (root == nullptr) ++tuple.used;
  root = insert(root, node);
  unrank(tuple);
  tuple.ranked.insert(entry);
  rank(tuple);
}

void TupleSpace::remove(Entry* entry) {
  const auto found = by_mask_.find(entry->match.mask);
  Tuple& tuple = found->second;
  const std::size_t slot = slot_of(tuple, entry->match.value.data());
  const KeyRange* range = first_range(*entry);
  Node* gone = nullptr;
  tuple.slots[slot] = erase(tuple.slots[slot], entry, range ? range->low : 0, gone);
  free_nodes_.push_back(gone);
  unrank(tuple);
  tuple.ranked.erase(entry);
  if (tuple.slots[slot] == nullptr) {
    --tuple.used;
    close_gap(tuple, slot);
  }
  if (tuple.ranked.empty()) {
    by_mask_.erase(found);
  } else {
    rank(tuple);
  }
}

void TupleSpace::grow(Tuple& tuple) const {
  std::vector<Node*> old(2 * tuple.slots.size());
  old.swap(tuple.slots);
  for (Node* root : old) {
    if (root) tuple.slots[slot_of(tuple, root->entry->match.value.data())] = root;
  }
}

/// Fills an empty slot, so that probes still reach the values behind it (Knuth, TAOCP 3, 6.4, algorithm R).
void TupleSpace::close_gap(Tuple& tuple, std::size_t hole) const {
  const std::size_t last = tuple.slots.size() - 1;
  for (std::size_t at = hole;;) {
    at = (at + 1) & last;
    Node* other = tuple.slots[at];
    if (other == nullptr) return;
    const std::size_t home = hash_key(other->entry->match.value.data(), tuple.mask, words_) & last;
    if (((at - home) & last) >= ((at - hole) & last)) {
      tuple.slots[hole] = other;
      tuple.slots[at] = nullptr;
      hole = at;
    }
  }
}

// The treap: in the order of (low end, rank), a heap in `heap` (R. Seidel, C. Aragon: Randomized Search
// Trees, 1996).

bool TupleSpace::before(const Node& a, std::uint64_t low, const Entry* entry) {
  return a.low != low ? a.low < low : Better()(a.entry, entry);
}

void TupleSpace::update(Node* node) {
  node->highest = node->high;
  node->best = node->entry;
  for (const Node* child : {node->left, node->right}) {
    if (child == nullptr) continue;
    node->highest = std::max(node->highest, child->highest);
    if (Better()(child->best, node->best)) node->best = child->best;
  }
}

void TupleSpace::split(Node* root, const Node& at, Node*& left, Node*& right) {
  if (root == nullptr) {
    left = right = nullptr;
  } else if (before(*root, at.low, at.entry)) {
    left = root;
    split(root->right, at, root->right, right);
    update(root);
  } else {
    right = root;
    split(root->left, at, left, root->left);
    update(root);
  }
}

TupleSpace::Node* TupleSpace::insert(Node* root, Node* node) {
  if (root == nullptr) return node;
  if (node->heap > root->heap) {
    split(root, *node, node->left, node->right);
    update(node);
    return node;
  }
  Node*& side = before(*root, node->low, node->entry) ? root->right : root->left;
  side = insert(side, node);
  update(root);
  return root;
}

TupleSpace::Node* TupleSpace::merge(Node* a, Node* b) {
  if (a == nullptr || b == nullptr) return a ? a : b;
  Node* root = a->heap > b->heap ? a : b;
  if (root == a) {
    a->right = merge(a->right, b);
  } else {
    b->left = merge(a, b->left);
  }
  update(root);
  return root;
}

TupleSpace::Node* TupleSpace::erase(Node* root, const Entry* entry, std::uint64_t low, Node*& gone) {
  if (root->entry == entry) {
    gone = root;
    return merge(root->left, root->right);
  }
  Node*& side = before(*root, low, entry) ? root->right : root->left;
  side = erase(side, entry, low, gone);
  update(root);
  return root;
}

}  // namespace railweave::engine
