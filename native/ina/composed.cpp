// SPDX-License-Identifier: Apache-2.0
#include "ina/composed.hpp"

#include <algorithm>
#include <limits>
#include <utility>

#include "ina/lanes.hpp"

namespace railweave::ina {
namespace {

constexpr std::size_t kNarrowBytes = 20 * 1024;  // of a segment; large tensors have none so small
constexpr std::uint32_t kAllAhead = std::numeric_limits<std::uint32_t>::max() / 2;  // exponents before data

std::byte* bytes_of(std::vector<std::int32_t>& integers) {
  return reinterpret_cast<std::byte*>(integers.data());
}

ReduceOp reduce_op(WireOp op) { return op == WireOp::kMax ? ReduceOp::kMax : ReduceOp::kSum; }

}  // namespace

ComposedAllReduce::ComposedAllReduce(Transport& transport, const MemberRing& ring, const Slice& slice,
                                     const ComposedOptions& options, RingCounts& counts)
    : ring_(ring),
      slice_(slice),
      options_(options),
      counts_(counts),
      transport_(transport),
      call_(slice, options.lanes, kAllAhead, false) {}

void ComposedAllReduce::note_sent(int peer) {
  machines_[columns_->sent(peer)]->note_sent((ring_.member() + 1) % ring_.size());
}

void ComposedAllReduce::note_received(int peer) {
  machines_[columns_->received(peer)]->note_received((ring_.member() + ring_.size() - 1) % ring_.size());
}

void ComposedAllReduce::rack_done() {
  Segment& segment = *in_rack_.front();
  in_rack_.pop_front();
  segment.stage = segment.stage == Stage::kSumming ? Stage::kSummed : Stage::kComplete;
}

// Sums are started as early as their order allows, before anything is handed out.
void ComposedAllReduce::advance(Time now) {
  for (bool moved = true; moved;) {
    moved = false;
    for (; !segments_.empty() && segments_.front().stage == Stage::kComplete; moved = true) {
      absorb(segments_.front());
      segments_.pop_front();
      --handed_out_;
    }
    for (; segments_.size() < handed_out_ + kDepth && next_item(); moved = true) build(now);
    if (handed_out_ == segments_.size()) continue;
    Segment& segment = segments_[handed_out_];
    if (segment.stage == Stage::kSummed) run_ring(segment, now);
    if (segment.stage == Stage::kInRing && go_round(segment, now)) moved = true;
  }
}

/// The item that the next segment begins with, if it may begin.
std::optional<Item> ComposedAllReduce::next_item() const {
  const auto item = call_.next();
  if (!item || segments_.empty() || item->phase == segments_.back().items.back().phase) return item;
  return std::nullopt;
}

/// How many items the next segment has. The ring idles while the first one is summed, and the last one is
/// handed out: so segments begin small, double, and halve towards the end.
std::size_t ComposedAllReduce::segment_items() const {
  const std::size_t most = options_.segment_bytes / ((options_.lanes + 1) * kLaneBytes);
  const std::size_t left = call_.left(call_.next()->phase);
  return std::max<std::size_t>({1, most / kSmallest, std::min({most, issued_, left / 2})});
}

// Behind the lanes of an item comes one for its flag.
void ComposedAllReduce::build(Time now) {
  const std::size_t lanes = options_.lanes, step = lanes + 1, most = segment_items();
  Segment& segment = segments_.emplace_back();
  std::vector<std::byte> packet(lanes * kLaneBytes);
  for (auto item = call_.next(); item && segment.items.size() < most; item = call_.next()) {
    if (!segment.items.empty() && item->phase != segment.items.back().phase) break;
    const std::size_t at = segment.all.size();
    segment.op = call_.wire_op(*item);
    const std::uint8_t flags = call_.build(*item, packet.data());
    segment.items.push_back(*item);
    segment.all.resize(at + step);
    decode_integers(packet.data(), lanes, Order::kMax, bytes_of(segment.all) + at * kLaneBytes);
    segment.all[at + lanes] = (flags & flag::kNonfinite) != 0 ? 1 : 0;
  }
  issued_ += segment.items.size();
  segment.narrow = segment.all.size() * kLaneBytes <= kNarrowBytes;
  const auto columns = segment.narrow ? 1 : static_cast<std::size_t>(ring_.columns());
  segment.column = (segment.all.size() + columns - 1) / columns;
  segment.all.resize(segment.column * columns);
  if (!in_rack()) {
    segment.stage = Stage::kSummed;
    return;
  }
  in_rack_.push_back(&segment);
  if (!segment.narrow) segment.own.resize(segment.column * static_cast<std::size_t>(ring_.own_columns()));
  start_in_rack(segment, segment.narrow ? Collective::kAllReduce : Collective::kReduceScatter, now);
}

void ComposedAllReduce::start_in_rack(Segment& segment, Collective collective, Time now) {
  const bool sums = collective == Collective::kAllReduce || collective == Collective::kReduceScatter;
  std::byte* const all = bytes_of(segment.all);
  std::byte* const own = segment.narrow ? all : bytes_of(segment.own);
  const std::size_t count = segment.narrow ? segment.all.size() : segment.own.size();
  // In place of a number that no switch looks at, the mark of the call: who calls something else is found.
  const CallDescription call{.op_index = slice_.call.op_index,
                             .collective = collective,
                             .dtype = DType::kInt32,
                             .op = sums ? reduce_op(segment.op) : ReduceOp::kSum,
                             .root = 0,
                             .count = mark_of(slice_.call)};
  options_.start_in_rack({.id = rack_slices_++,
                          .call = call,
                          .input = sums ? all : own,
                          .output = sums ? own : all,
                          .count = count,
                          .stride = segment.own.size(),
                          .rank = ring_.place(),
                          .world_size = static_cast<int>(ring_.rack().size())},
                         now);
}

void ComposedAllReduce::run_ring(Segment& segment, Time) {
  segment.stage = Stage::kInRing;
  std::byte* const sums = bytes_of(in_rack() && !segment.narrow ? segment.own : segment.all);
  machines_.clear();
  columns_.emplace(transport_, ring_, segment.narrow);
  for (std::size_t place = 0; place < columns_->size(); ++place) {
    std::byte* const column = sums + place * segment.column * kLaneBytes;
    const CallDescription call{.op_index = slice_.call.op_index,
                               .collective = Collective::kAllReduce,
                               .dtype = DType::kInt32,
                               .op = reduce_op(segment.op),
                               .root = 0,
                               .count = segment.column};
    const Slice slice{.id = 0,
                      .call = call,
                      .input = column,
                      .output = column,
                      .count = segment.column,
                      .stride = 0,
                      .rank = ring_.member(),
                      .world_size = ring_.size()};
    machines_.push_back(make_ring(columns_->column(place), slice, options_.segment_bytes));
  }
}

/// Whether the segment has left the ring, and is handed out.
bool ComposedAllReduce::go_round(Segment& segment, Time now) {
  const std::uint64_t before = columns_->messages();
  for (const auto& machine : machines_) machine->advance(now);
  counts_.messages += columns_->messages() - before;
  const auto ready = [](const auto& machine) { return machine->ready(); };
  if (!std::all_of(machines_.begin(), machines_.end(), ready)) return false;
  counts_.rings += machines_.size();
  ++handed_out_;
  segment.stage = in_rack() ? Stage::kHandedOut : Stage::kComplete;
  if (!in_rack()) return true;
  in_rack_.push_back(&segment);
  start_in_rack(segment, segment.narrow ? Collective::kBroadcast : Collective::kAllGather, now);
  return true;
}

void ComposedAllReduce::absorb(const Segment& segment) {
  const std::size_t lanes = options_.lanes, step = lanes + 1;
  std::vector<std::byte> packet(lanes * kLaneBytes);
  const auto* const from = reinterpret_cast<const std::byte*>(segment.all.data());
  for (std::size_t i = 0; i < segment.items.size(); ++i) {
    encode_integers(from + i * step * kLaneBytes, lanes, Order::kMax, packet.data());
    const bool nonfinite = segment.all[i * step + lanes] != 0;
    call_.absorb(segment.items[i], nonfinite ? flag::kNonfinite : 0, packet.data());
  }
}

}  // namespace railweave::ina
