// SPDX-License-Identifier: Apache-2.0
#include "ina/composed.hpp"

#include <algorithm>
#include <limits>
#include <utility>

#include "ina/lanes.hpp"

namespace railweave::ina {
namespace {

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
  const bool sums = segment.summed < segment.sums.size() * slices(segment);
  ++(sums ? segment.summed : segment.handed_out);
}

// Sums are started as early as their order allows, before anything is handed out.
void ComposedAllReduce::advance(Time now) {
  for (bool moved = true; moved;) {
    moved = false;
    for (; !segments_.empty() && complete(segments_.front()); moved = true) {
      absorb(segments_.front());
      segments_.pop_front();
      --handed_out_;
    }
    for (; segments_.size() < handed_out_ + kDepth && next_item(); moved = true) build(now);
    if (handed_out_ < segments_.size() && go_round(segments_[handed_out_], now)) moved = true;
  }
}

/// The item that the next segment begins with, if it may begin.
std::optional<Item> ComposedAllReduce::next_item() const {
  const auto item = call_.next();
  if (!item || segments_.empty() || item->phase == segments_.back().items.back().phase) return item;
  return std::nullopt;
}

/// How many items the next segment has. The rack's links have the most to do while the first one is summed,
/// and the ring idles while the last one is handed out: so segments begin small, double, and halve towards
/// the end.
std::size_t ComposedAllReduce::segment_items() const {
  const std::size_t segment = options_.message_bytes * static_cast<std::size_t>(ring_.size());
  const std::size_t most = segment / ((options_.lanes + 1) * kLaneBytes);
  const std::size_t left = call_.left(call_.next()->phase);
  const std::size_t items = std::max<std::size_t>(1, std::min(most, std::max(most / kFirst, issued_)));
  if (left <= most / kLast) return left;
  return left < 2 * items ? (left + 1) / 2 : items;
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
  segment.narrow = segment.all.size() * kLaneBytes <= options_.narrow_bytes;
  const auto columns = segment.narrow ? 1 : static_cast<std::size_t>(ring_.columns());
  segment.column = (segment.all.size() + columns - 1) / columns;
  segment.all.resize(segment.column * columns);
  if (!in_rack()) return;
  if (!segment.narrow) segment.own.resize(segment.column * static_cast<std::size_t>(ring_.own_columns()));
  segment.sums = pieces(segment, ring_.member());
  segment.spreads = pieces(segment, (ring_.member() + 1) % ring_.size());
  const Collective sum = segment.narrow ? Collective::kAllReduce : Collective::kReduceScatter;
  for (const Blocks& piece : segment.sums) start_in_rack(segment, piece, sum, now);
}

/// All blocks from `first` downwards, and round, in pieces of about equal size.
std::vector<ComposedAllReduce::Blocks> ComposedAllReduce::pieces(const Segment& segment, int first) const {
  const auto members = static_cast<std::size_t>(ring_.size());
  if (segment.narrow || segment.column < members) return {{0, members}};  // no block is empty elsewhere
  const std::size_t most =
      std::min({segment.column * kLaneBytes / options_.piece_bytes, kMostPieces, members});
  const std::size_t blocks = most == 0 ? members : (members + most - 1) / most;
  std::vector<Blocks> pieces;
  for (std::size_t end = static_cast<std::size_t>(first) + 1, left = members; left > 0;) {
    const std::size_t size = std::min({blocks, end, left});
    pieces.push_back({end - size, end});
    left -= size;
    end = end == size ? members : end - size;
  }
  return pieces;
}

void ComposedAllReduce::start_in_rack(Segment& segment, const Blocks& piece, Collective collective,
                                      Time now) {
  const bool sums = collective == Collective::kAllReduce || collective == Collective::kReduceScatter;
  const auto members = static_cast<std::size_t>(ring_.size());
  const std::size_t begin = segment.column * piece.begin / members;
  // In place of a number that no switch looks at, the mark of the call: who calls something else is found.
  const CallDescription call{.op_index = slice_.call.op_index,
                             .collective = collective,
                             .dtype = DType::kInt32,
                             .op = sums ? reduce_op(segment.op) : ReduceOp::kSum,
                             .root = 0,
                             .count = mark_of(slice_.call)};
  for (std::size_t column = 0; column < slices(segment); ++column) {
    const std::size_t offset = (column * segment.column + begin) * kLaneBytes;
    std::byte* const all = bytes_of(segment.all) + offset;
    std::byte* const own = segment.narrow ? all : bytes_of(segment.own) + offset;
    in_rack_.push_back(&segment);
    options_.start_in_rack({.id = rack_slices_++,
                            .call = call,
                            .input = sums ? all : own,
                            .output = sums ? own : all,
                            .count = segment.column * piece.end / members - begin,
                            .stride = segment.own.size(),
                            .rank = ring_.place(),
                            .world_size = static_cast<int>(ring_.rack().size())},
                           now);
  }
}

void ComposedAllReduce::enter_ring(Segment& segment) {
  std::byte* const sums = bytes_of(in_rack() && !segment.narrow ? segment.own : segment.all);
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
    machines_.push_back(make_block_ring(columns_->column(place), slice, options_.message_bytes));
  }
}

/// Tells the ring which blocks the rack has summed.
void ComposedAllReduce::provide(const Segment& segment) {
  std::size_t blocks = segment.sums.empty() ? static_cast<std::size_t>(ring_.size()) : 0;
  const std::size_t summed = segment.summed / slices(segment);
  for (std::size_t piece = 0; piece < summed; ++piece)
    blocks += segment.sums[piece].end - segment.sums[piece].begin;
  for (const auto& machine : machines_) machine->provide(blocks);
}

/// Whether the segment has left the ring, and its last piece is handed out.
bool ComposedAllReduce::go_round(Segment& segment, Time now) {
  if (!segment.sums.empty() && segment.summed < slices(segment)) return false;
  if (!columns_) enter_ring(segment);
  provide(segment);
  const std::uint64_t before = columns_->messages();
  for (const auto& machine : machines_) machine->advance(now);
  counts_.messages += columns_->messages() - before;
  hand_out(segment, now);
  const auto ready = [](const auto& machine) { return machine->ready(); };
  if (!std::all_of(machines_.begin(), machines_.end(), ready)) return false;
  counts_.rings += machines_.size();
  machines_.clear();
  columns_.reset();
  ++handed_out_;
  return segment.round = true;
}

/// Starts what is complete in the ring.
void ComposedAllReduce::hand_out(Segment& segment, Time now) {
  auto blocks = static_cast<std::size_t>(ring_.size());
  for (const auto& machine : machines_) blocks = std::min(blocks, machine->complete());
  std::size_t started = 0;
  for (std::size_t piece = 0; piece < segment.started; ++piece)
    started += segment.spreads[piece].end - segment.spreads[piece].begin;
  const Collective spread = segment.narrow ? Collective::kBroadcast : Collective::kAllGather;
  for (; segment.started < segment.spreads.size(); ++segment.started) {
    const Blocks& piece = segment.spreads[segment.started];
    started += piece.end - piece.begin;
    if (started > blocks) return;
    start_in_rack(segment, piece, spread, now);
  }
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
