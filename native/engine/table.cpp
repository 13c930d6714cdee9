// SPDX-License-Identifier: Apache-2.0
#include "engine/table.hpp"

#include <algorithm>
#include <stdexcept>

namespace railweave::engine {
namespace {

constexpr std::size_t kFewEntries = 64;
constexpr std::size_t kMaxScan = 1u << 14;  // entries; beyond, keeping them in order is dear

}  // namespace

Table::Table(const TablePlan& plan, std::uint32_t parameter_words)
    : plan_(plan), parameter_words_(parameter_words), space_(plan.words) {
  default_.action = kNone;
  default_.parameters.resize(parameter_words);
}

void Table::reserve_parameters(std::uint32_t words) {
  if (words <= parameter_words_) return;
  parameter_words_ = words;
  default_.parameters.resize(words);
  for (auto& [handle, entry] : entries_) entry->parameters.resize(words);
  for (auto& group : selectors_) {
    for (Choice& choice : group) choice.parameters.resize(words);
  }
}

/// Where the search for a key begins.
std::size_t Table::slot_of(const Group& group, const std::uint64_t* key) const {
  return hash_key(key, group.mask.data(), plan_.words) & (group.slots.size() - 1);
}

bool Table::matches(const Entry& entry, const std::uint64_t* key) const {
  const Match& match = entry.match;
  std::uint64_t different = 0;
  for (std::uint32_t i = 0; i < plan_.words; ++i) different |= (key[i] & match.mask[i]) ^ match.value[i];
  return different == 0 && in_ranges(match, key);
}

Entry* Table::scan(const std::uint64_t* key) const {
  const std::size_t words = plan_.words;
  const std::uint64_t* pattern = patterns_.data();
  for (Entry* entry : ordered_) {
    std::uint64_t different = 0;
    for (std::size_t i = 0; i < words; ++i) different |= (key[i] & pattern[words + i]) ^ pattern[i];
    if (different == 0 && in_ranges(entry->match, key)) return entry;
    pattern += 2 * words;
  }
  return nullptr;
}

Entry* Table::find(const Group& group, const std::uint64_t* key) const {
  const std::size_t last = group.slots.size() - 1;
  for (std::size_t at = slot_of(group, key);; at = (at + 1) & last) {
    Entry* entry = group.slots[at];
    if (!entry || matches(*entry, key)) return entry;
  }
}

Entry* Table::look_up(const std::uint64_t* key) {
  Entry* found = nullptr;
  if (plan_.kind == MatchKind::kTernary) {
    found = scans_ ? scan(key) : space_.lookup(key);
  } else {
    for (const Group& group : groups_) {
      found = find(group, key);
      if (found != nullptr) break;
    }
  }
  last_.known = plan_.words <= last_.key.size();
  if (last_.known) std::copy_n(key, plan_.words, last_.key.begin());
  last_.entry = found;
  return found;
}

void Table::place(Group& group, Entry* entry) const {
  const std::size_t last = group.slots.size() - 1;
  std::size_t at = slot_of(group, entry->match.value.data());
  while (group.slots[at]) at = (at + 1) & last;
  group.slots[at] = entry;
}

void Table::add_to_group(Entry* entry) {
  auto at = std::find_if(groups_.begin(), groups_.end(),
                         [&](const Group& group) { return group.mask == entry->match.mask; });
  if (at == groups_.end()) {
    at = std::find_if(groups_.begin(), groups_.end(),
                      [&](const Group& group) { return group.priority < entry->match.priority; });
    at = groups_.insert(at, {entry->match.mask, entry->match.priority, std::vector<Entry*>(8), 0});
  }
  if (2 * (at->used + 1) > at->slots.size()) {  // half empty, so that every probe ends soon
    std::vector<Entry*> old(2 * at->slots.size());
    old.swap(at->slots);
    for (Entry* other : old) {
      if (other) place(*at, other);
    }
  }
  place(*at, entry);
  ++at->used;
}

void Table::remove_from_group(Entry* entry) {
  const auto group = std::find_if(groups_.begin(), groups_.end(),
                                  [&](const Group& other) { return other.mask == entry->match.mask; });
  const std::size_t last = group->slots.size() - 1;
  std::size_t hole = slot_of(*group, entry->match.value.data());
  while (group->slots[hole] != entry) hole = (hole + 1) & last;
  // Close the gap, so that probes still reach the entries behind it (Knuth, TAOCP 3, 6.4, algorithm R).
  for (std::size_t at = hole;;) {
    at = (at + 1) & last;
    Entry* other = group->slots[at];
    if (!other) break;
    const std::size_t home = slot_of(*group, other->match.value.data());
    if (((at - home) & last) >= ((at - hole) & last)) {
      group->slots[hole] = other;
      hole = at;
    }
  }
  group->slots[hole] = nullptr;
  if (--group->used == 0) groups_.erase(group);
}

void Table::add_ternary(Entry* entry) {
  space_.add(entry);
  if (ordered_.size() < kMaxScan) {
    const auto at = std::upper_bound(ordered_.begin(), ordered_.end(), entry, Better());
    const auto pattern = patterns_.begin() + 2 * plan_.words * (at - ordered_.begin());
    const auto behind = patterns_.insert(pattern, entry->match.mask.begin(), entry->match.mask.end());
    patterns_.insert(behind, entry->match.value.begin(), entry->match.value.end());
    ordered_.insert(at, entry);
  }
  choose_way();
}

void Table::remove_ternary(Entry* entry) {
  space_.remove(entry);
  const auto at = std::lower_bound(ordered_.begin(), ordered_.end(), entry, Better());
  if (at != ordered_.end() && *at == entry) {
    const auto pattern = patterns_.begin() + 2 * plan_.words * (at - ordered_.begin());
    patterns_.erase(pattern, pattern + 2 * plan_.words);
    ordered_.erase(at);
  }
  choose_way();
}

/// A scan is fast for few entries, and where nearly every entry has a different mask.
void Table::choose_way() {
  const std::size_t count = ordered_.size();
  scans_ = count == space_.size() && (count <= kFewEntries || count <= 4 * space_.tuples());
}

void Table::check(std::uint32_t action, std::vector<std::uint64_t>& parameters) const {
  // A value set is a table without actions: it is only asked whether it has an entry.
  const bool value_set = action == kNone && plan_.actions.empty();
  const bool group = action == kGroup && plan_.selector != kNone;
  if (action >= plan_.actions.size() && !value_set && !group) {
    throw std::invalid_argument("table: no such action");
  }
  if (parameters.size() > parameter_words_) throw std::invalid_argument("table: too many parameters");
  parameters.resize(parameter_words_);
}

std::uint64_t Table::insert(Match match, std::uint32_t action, std::vector<std::uint64_t> parameters) {
  check(action, parameters);
  if (match.value.size() != plan_.words || match.mask.size() != plan_.words) {
    throw std::invalid_argument("table: key of another length");
  }
  for (std::size_t i = 0; i < match.value.size(); ++i) match.value[i] &= match.mask[i];
  for (std::size_t i = 0; i < match.ranges.size(); ++i) {
    const KeyRange& range = match.ranges[i];
    const std::size_t more = range.width > 64 ? (range.width + 63) / 64 - 1 : 0;
    const bool fits = more ? range.shift == 0 : range.width >= 1 && range.shift <= 64 - range.width;
    if (!fits || std::uint64_t{range.word} + more >= plan_.words || i + more >= match.ranges.size()) {
      throw std::invalid_argument("table: range outside the key");
    }
    i += more;
  }
  if (entries_.size() >= plan_.size) throw std::length_error("table: full");
  auto entry = std::make_unique<Entry>();
  entry->handle = next_handle_++;
  entry->match = std::move(match);
  entry->action = action;
  entry->parameters = std::move(parameters);
  entry->slot = free_slots_.empty() ? next_slot_++ : free_slots_.top();
  if (!free_slots_.empty()) free_slots_.pop();
  Entry* raw = entry.get();
  last_.known = false;
  if (plan_.kind == MatchKind::kTernary) {
    add_ternary(raw);
  } else {
    add_to_group(raw);
  }
  entries_.emplace(raw->handle, std::move(entry));
  return raw->handle;
}

Entry& Table::entry(std::uint64_t handle) {
  const auto at = entries_.find(handle);
  if (at == entries_.end()) throw std::out_of_range("table: no such entry");
  return *at->second;
}

void Table::modify(std::uint64_t handle, std::uint32_t action, std::vector<std::uint64_t> parameters) {
  check(action, parameters);
  Entry& changed = entry(handle);
  changed.action = action;
  changed.parameters = std::move(parameters);
}

void Table::remove(std::uint64_t handle) {
  Entry* gone = &entry(handle);
  last_.known = false;
  if (plan_.kind == MatchKind::kTernary) {
    remove_ternary(gone);
  } else {
    remove_from_group(gone);
  }
  free_slots_.push(gone->slot);
  entries_.erase(handle);
}

void Table::set_group(std::uint32_t group, std::vector<Choice> choices) {
  constexpr std::uint32_t kMaxGroups = 1u << 20;
  if (plan_.selector == kNone || group >= kMaxGroups) throw std::invalid_argument("table: no such group");
  for (Choice& choice : choices) {
    if (choice.action >= plan_.actions.size()) throw std::invalid_argument("table: no such action");
    check(choice.action, choice.parameters);
  }
  if (group >= selectors_.size()) selectors_.resize(group + 1u);
  selectors_[group] = std::move(choices);
}

void Table::set_default(std::uint32_t action, std::vector<std::uint64_t> parameters) {
  if (action != kNone) check(action, parameters);
  parameters.resize(parameter_words_);
  default_.action = action;
  default_.parameters = std::move(parameters);
}

}  // namespace railweave::engine
