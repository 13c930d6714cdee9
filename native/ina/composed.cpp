// SPDX-License-Identifier: Apache-2.0
#include "ina/composed.hpp"

#include <algorithm>
#include <utility>

#include "ina/lanes.hpp"

namespace railweave::ina {
namespace {

template <typename Integer>
std::byte* bytes_of(std::vector<Integer>& integers) {
  return reinterpret_cast<std::byte*>(integers.data());
}

ReduceOp reduce_op(WireOp op) { return op == WireOp::kMax ? ReduceOp::kMax : ReduceOp::kSum; }

/// A lane of exponents or flags as a byte. A lane below 0 is the identity of a maximum, and becomes 0.
std::uint8_t packed(std::int32_t lane) { return static_cast<std::uint8_t>(std::clamp(lane, 0, 255)); }

}  // namespace

ComposedAllReduce::ComposedAllReduce(Transport& transport, const MemberRing& ring, const Slice& slice,
                                     const ComposedOptions& options, RingCounts& counts)
    : ring_(ring),
      slice_(slice),
      options_(options),
      counts_(counts),
      call_(slice, {.lanes = options.lanes}),
      exponents_(static_cast<std::uint32_t>(call_.left(Phase::kExponents))),
      data_(static_cast<std::uint32_t>(call_.left(Phase::kData))),
      columns_(transport, ring) {}

void ComposedAllReduce::note_sent(int peer) {
  columns_.sent(peer).machine->note_sent((ring_.member() + 1) % ring_.size());
}

void ComposedAllReduce::note_received(int peer) {
  columns_.received(peer).machine->note_received((ring_.member() + ring_.size() - 1) % ring_.size());
}

void ComposedAllReduce::rack_done() {
  const auto [part, sums] = in_rack_.front();
  in_rack_.pop_front();
  ++(sums ? part->summed : part->handed_out);
}

// Sums are started as early as their order allows, before anything is handed out.
void ComposedAllReduce::advance(Time now) {
  const std::uint64_t before = columns_.messages();
  for (bool moved = true; moved;) {
    moved = false;
    for (; !segments_.empty() && complete(segments_.front()); moved = true) {
      absorb(segments_.front());
      segments_.pop_front();
      --handed_out_;
    }
    for (; may_build(); moved = true) build(now);
    std::size_t in_ring = 0;
    for (Segment& segment : segments_) {
      if (segment.round) continue;
      if (in_ring++ == kInRing || !may_enter(segment)) break;
      go_round(segment, now);
    }
    if (handed_out_ < segments_.size() && !waits_for_exponents() && hand_out(segments_[handed_out_], now)) {
      ++handed_out_;
      moved = true;
    }
  }
  counts_.messages += columns_.messages() - before;
}

bool ComposedAllReduce::complete(const Segment& segment) const {
  return segment.round && std::all_of(segment.parts.begin(), segment.parts.end(), [this](const Part& part) {
           return part.handed_out == part.spreads.size() * slices(part);
         });
}

/// The most items of data in a segment.
std::size_t ComposedAllReduce::most_items() const {
  return std::max<std::size_t>(1, options_.message_bytes * size() / ((options_.lanes + 1) * kLaneBytes));
}

/// How many items of data the next segment has if `issued` are issued. The ring idles while the first pieces
/// are summed and while the last pieces are handed out. So the first and the last segment are small.
std::size_t ComposedAllReduce::items_after(std::size_t issued) const {
  const std::size_t most = most_items(), left = data_ - issued;
  const std::size_t small = std::max<std::size_t>(1, most / kSmall);
  if (left <= small) return left;
  const std::size_t items = issued == 0 ? small : issued < most ? most - issued : most;
  return std::min(items, left - small);
}

/// Items of exponents that the issued data and `segments` more segments need.
std::uint32_t ComposedAllReduce::exponents_for(std::size_t issued, std::size_t segments) const {
  if (exponents_ == 0) return 0;
  for (; segments > 0 && issued < data_; --segments) issued += items_after(issued);
  return static_cast<std::uint32_t>((issued + options_.lanes - 1) / options_.lanes);
}

/// The rack's next slices are the sums of a segment whose exponents are on their way.
bool ComposedAllReduce::waits_for_exponents() const {
  return call_.left(Phase::kData) > 0 && !nonfinite_.empty() && segments_.size() < handed_out_ + kDepth;
}

bool ComposedAllReduce::may_build() const {
  if (segments_.size() >= handed_out_ + kDepth) return false;
  if (call_.left(Phase::kData) == 0) {
    const bool begun = !segments_.empty() && segments_.back().parts.back().items[0].phase == Phase::kClasses;
    return (begun || segments_.empty()) && call_.next().has_value();
  }
  if (exponents_ == 0 || first_left(Phase::kExponents) == 0) return true;
  const std::size_t issued = first_left(Phase::kData);
  return issued + items_after(issued) <= nonfinite_.size() * options_.lanes ||
         nonfinite_.size() == exponents_;
}

void ComposedAllReduce::build(Time now) {
  Segment& segment = segments_.emplace_back();
  segment.parts.reserve(2);
  const std::uint32_t exponents = first_left(Phase::kExponents), issued = first_left(Phase::kData);
  const bool begins = exponents_ > 0 && exponents == 0;
  const auto items = static_cast<std::uint32_t>(begins || issued == data_ ? 0 : items_after(issued));
  if (exponents_for(issued + items, kLead) > exponents) {
    const std::uint32_t until = exponents_for(issued + items, begins ? kLead : kMostLead);
    add_part(segment, Phase::kExponents, until - exponents);
  }
  if (items > 0) add_part(segment, Phase::kData, items);
  if (issued == data_) {
    const std::size_t left = call_.left(Phase::kClasses);
    add_part(segment, Phase::kClasses, static_cast<std::uint32_t>(std::min(left, most_items())));
  }
  if (!in_rack()) return;
  for (Part& part : segment.parts) {
    const Collective sum = part.narrow ? Collective::kAllReduce : Collective::kReduceScatter;
    for (const Blocks& piece : part.sums) start_in_rack(part, piece, sum, now);
  }
}

void ComposedAllReduce::add_part(Segment& segment, Phase phase, std::uint32_t count) {
  const std::size_t lanes = options_.lanes, members = size();
  Part& part = segment.parts.emplace_back();
  part.bytes = phase == Phase::kExponents;
  part.op = call_.wire_op(next_item(phase));
  part.step = lanes + (may_be_flagged(phase, count) ? 1 : 0);
  part.all.resize(count * part.step);
  std::vector<std::byte> packet(lanes * kLaneBytes);
  for (std::uint32_t i = 0; i < count; ++i) {
    const Item item = part.items.emplace_back(next_item(phase));
    const std::uint8_t flags = call_.build(item, packet.data());
    std::int32_t* const to = part.all.data() + i * part.step;
    decode_integers(packet.data(), lanes, Order::kMax, reinterpret_cast<std::byte*>(to));
    if (part.step > lanes) to[lanes] = (flags & flag::kNonfinite) != 0 ? 1 : 0;
  }
  const bool whole = phase != Phase::kData || count == data_;
  part.narrow = part.bytes || (whole && part.all.size() * kLaneBytes <= options_.narrow_bytes);
  const auto columns = part.narrow ? 1 : static_cast<std::size_t>(ring_.columns());
  // No block is empty, so that all columns have equally many messages.
  part.column = std::max(members, (part.all.size() + columns - 1) / columns);
  part.all.resize(part.column * columns);
  if (part.bytes) part.packed.resize(part.column);
  if (!in_rack()) return;
  if (!part.narrow) part.own.resize(part.column * static_cast<std::size_t>(ring_.own_columns()));
  part.sums = pieces(part, ring_.member());
  part.spreads = pieces(part, (ring_.member() + 1) % ring_.size());
}

Item ComposedAllReduce::next_item(Phase phase) const {
  return phase == Phase::kClasses ? *call_.next() : Item{phase, first_left(phase)};
}

/// Whether some of the next items may have flags. The flags of exponents determine these flags.
bool ComposedAllReduce::may_be_flagged(Phase phase, std::uint32_t count) const {
  if (phase != Phase::kData || exponents_ == 0) return phase == Phase::kExponents;
  const std::uint32_t first = first_left(phase);
  const auto begin = nonfinite_.begin() + first / options_.lanes;
  const auto end = nonfinite_.begin() + (first + count - 1) / options_.lanes + 1;
  return std::find(begin, end, true) != end;
}

/// All blocks in pieces of about equal size, cyclically from `first` downwards.
std::vector<ComposedAllReduce::Blocks> ComposedAllReduce::pieces(const Part& part, int first) const {
  const std::size_t members = size();
  if (part.narrow) return {{0, members}};
  const std::size_t most = std::min({part.column * kLaneBytes / options_.piece_bytes, kMostPieces, members});
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

void ComposedAllReduce::start_in_rack(Part& part, const Blocks& piece, Collective collective, Time now) {
  const bool sums = collective == Collective::kAllReduce || collective == Collective::kReduceScatter;
  const bool bytes = part.bytes && !sums;
  const std::size_t begin = part.column * piece.begin / size();
  // Switches ignore the count. It carries the call's mark, so that ranks notice if their calls differ.
  const CallDescription call{.op_index = slice_.call.op_index,
                             .collective = collective,
                             .dtype = bytes ? DType::kUInt8 : DType::kInt32,
                             .op = sums ? reduce_op(part.op) : ReduceOp::kSum,
                             .root = 0,
                             .count = mark_of(slice_.call)};
  for (std::size_t column = 0; column < slices(part); ++column) {
    const std::size_t offset = (column * part.column + begin) * kLaneBytes;
    std::byte* const all = bytes ? bytes_of(part.packed) : bytes_of(part.all) + offset;
    std::byte* const own = part.narrow ? all : bytes_of(part.own) + offset;
    in_rack_.push_back({&part, sums});
    options_.start_in_rack({.id = rack_slices_++,
                            .call = call,
                            .input = sums ? all : own,
                            .output = sums ? own : all,
                            .count = part.column * piece.end / size() - begin,
                            .stride = part.own.size(),
                            .rank = ring_.place(),
                            .world_size = static_cast<int>(ring_.rack().size())},
                           now);
  }
}

/// The first blocks of the segment are summed.
bool ComposedAllReduce::may_enter(const Segment& segment) const {
  return std::all_of(segment.parts.begin(), segment.parts.end(),
                     [this](const Part& part) { return part.sums.empty() || part.summed >= slices(part); });
}

void ComposedAllReduce::enter_ring(Segment& segment) {
  std::vector<int> own;
  for (const Part& part : segment.parts)
    for (int column = 0; column < (part.narrow ? ring_.place() == 0 : ring_.own_columns()); ++column)
      own.push_back(column);
  std::vector<std::unique_ptr<Column>> opened = columns_.open(own);
  auto next = opened.begin();
  for (Part& part : segment.parts) {
    const DType dtype = part.bytes ? DType::kUInt8 : DType::kInt32;
    if (part.bytes) std::transform(part.all.begin(), part.all.end(), part.packed.begin(), packed);
    std::byte* const sums = part.bytes                  ? bytes_of(part.packed)
                            : in_rack() && !part.narrow ? bytes_of(part.own)
                                                        : bytes_of(part.all);
    const std::size_t columns =
        part.narrow ? ring_.place() == 0 : static_cast<std::size_t>(ring_.own_columns());
    for (std::size_t place = 0; place < columns; ++place) {
      std::byte* const column = sums + place * part.column * item_size(dtype);
      const CallDescription call{.op_index = slice_.call.op_index,
                                 .collective = Collective::kAllReduce,
                                 .dtype = dtype,
                                 .op = reduce_op(part.op),
                                 .root = slice_.call.root,
                                 .count = part.column,
                                 .called = slice_.call.called};
      const Slice slice{.id = 0,
                        .call = call,
                        .input = column,
                        .output = column,
                        .count = part.column,
                        .stride = 0,
                        .rank = ring_.member(),
                        .world_size = ring_.size()};
      Column& ring = *part.rings.emplace_back(std::move(*next++));
      ring.machine = make_block_ring(ring, slice);
    }
  }
}

/// Tells the ring which blocks the rack has summed.
void ComposedAllReduce::provide(const Part& part) {
  std::size_t blocks = part.sums.empty() ? size() : 0;
  const std::size_t summed = part.summed / slices(part);
  for (std::size_t piece = 0; piece < summed; ++piece)
    blocks += part.sums[piece].end - part.sums[piece].begin;
  for (const auto& ring : part.rings) ring->machine->provide(blocks);
}

void ComposedAllReduce::go_round(Segment& segment, Time now) {
  if (!segment.in_ring) enter_ring(segment);
  segment.in_ring = segment.round = true;
  for (Part& part : segment.parts) {
    provide(part);
    for (const auto& ring : part.rings) {
      ring->machine->advance(now);
      segment.round = segment.round && ring->machine->ready();
    }
  }
  if (!segment.round) return;
  for (const Part& part : segment.parts) counts_.rings += part.rings.size();
}

/// Starts to hand out the pieces that are complete in the ring, in order. Returns whether these were all.
/// Exponents come last, so that data need not wait for the ring of exponents.
bool ComposedAllReduce::hand_out(Segment& segment, Time now) {
  if (!segment.in_ring) return false;
  for (auto part = segment.parts.rbegin(); part != segment.parts.rend(); ++part) {
    std::size_t blocks = size(), started = 0;
    for (const auto& ring : part->rings) blocks = std::min(blocks, ring->machine->complete());
    for (std::size_t piece = 0; piece < part->started; ++piece)
      started += part->spreads[piece].end - part->spreads[piece].begin;
    const Collective spread = part->narrow ? Collective::kBroadcast : Collective::kAllGather;
    for (; part->started < part->spreads.size(); ++part->started) {
      const Blocks& piece = part->spreads[part->started];
      started += piece.end - piece.begin;
      if (started > blocks) return false;
      start_in_rack(*part, piece, spread, now);
    }
  }
  return segment.round;
}

void ComposedAllReduce::absorb(const Segment& segment) {
  const std::size_t lanes = options_.lanes;
  std::vector<std::byte> packet(lanes * kLaneBytes);
  std::vector<std::int32_t> unpacked(lanes);
  for (const Part& part : segment.parts)
    for (std::size_t i = 0; i < part.items.size(); ++i) {
      const std::int32_t* from = part.all.data() + i * part.step;
      bool nonfinite = part.step > lanes && from[lanes] != 0;
      if (part.bytes) {
        const std::uint8_t* const bytes = part.packed.data() + i * part.step;
        std::copy_n(bytes, lanes, unpacked.begin());
        from = unpacked.data();
        nonfinite_.push_back(nonfinite = bytes[lanes] != 0);
      }
      encode_integers(reinterpret_cast<const std::byte*>(from), lanes, Order::kMax, packet.data());
      call_.absorb(part.items[i], nonfinite ? flag::kNonfinite : 0, packet.data());
    }
}

}  // namespace railweave::ina
