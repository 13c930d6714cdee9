// SPDX-License-Identifier: Apache-2.0
#include "agent/calls.hpp"

#include <algorithm>
#include <cstring>
#include <utility>

namespace railweave {

// ---------------------------------------------------------------- submission

void Calls::add_rail() {
  main_.emplace_back();
  repair_.emplace_back();
}

void Calls::keep(std::vector<std::uint64_t> rates) {
  keeping_ = true;
  repair_rates_ = std::move(rates);
  if (std::count(repair_rates_.begin(), repair_rates_.end(), 0) > 0)
    std::fill(repair_rates_.begin(), repair_rates_.end(), 1);
}

// An all_reduce is repeated only while no rank has completed it, so the caller's input is still valid.
std::size_t Calls::kept_input(const CallDescription& call) const {
  return call.collective == Collective::kAllReduce ? 0 : bytes_of(call, rank_, world_size_).input;
}

Calls::Memory Calls::reserve(const CallDescription& call) {
  if (!keeping_) return {};
  Memory memory{.result = pool_.take(bytes_of(call, rank_, world_size_).output), .input = {}};
  if (const std::size_t bytes = kept_input(call); bytes > 0) memory.input = pool_.take(bytes);
  return memory;
}

std::size_t Calls::kept_beside_largest() const {
  std::size_t largest = 0;
  for (const Call& call : calls_) largest = std::max(largest, call.memory.bytes());
  return kept_bytes() - largest;
}

void Calls::fill(const Submission& submission, const Memory& memory) const {
  if (memory.input) std::memcpy(memory.input.data(), submission.input, kept_input(submission.call));
}

void Calls::submit(const Submission& submission, Memory memory, Time now) {
  Call& call = calls_.emplace_back();
  call.description = submission.call;
  call.description.op_index = next_++;
  call.input = memory.input ? memory.input.data() : submission.input;
  call.output = memory.result ? memory.result.data() : submission.output;
  call.caller = submission.output;
  call.memory = std::move(memory);
  call.parts.assign(submission.parts.begin(), submission.parts.end());
  call.submitted = call.last_done = now;
  call.expected = submission.expected;
  ++pending_;
  for (const Part& part : call.parts) {
    const bool several = std::ranges::count(call.parts, part.rail, &Part::rail) > 1;
    call.pieces.push_back(
        {.rail = part.rail, .offset = part.offset, .count = part.count, .movable = several});
  }
  for (Cut& cut : standing_) {
    if (call.description.op_index < cut.commit.boundary)
      call.pieces = recut(call.description, world_size_, repair_rates_, false, call.pieces, cut);
  }
  std::erase_if(standing_, [this](const Cut& cut) { return cut.commit.boundary <= next_; });
  enqueue(call);
}

void Calls::skip() {
  ++next_;
  if (calls_.empty()) first_ = next_;
}

// Gives new pieces the next places of their channels.
void Calls::enqueue(Call& call) {
  call.missing = 0;
  for (Piece& piece : call.pieces) {
    if (piece.needed && !piece.done) ++call.missing;
    if (piece.id != 0) continue;
    piece.id = next_id_++;
    auto& queue = channel({.rail = piece.rail, .repair = piece.repair}).queue;
    const std::uint32_t op_index = call.description.op_index;
    const bool another = !queue.empty() && queue.back().op_index == op_index;
    queue.push_back({.op_index = op_index,
                     .part = static_cast<std::uint16_t>(another ? queue.back().part + 1 : 0),
                     .id = piece.id,
                     .needed = piece.needed,
                     .movable = piece.movable});
  }
}

// ---------------------------------------------------------------- on the channels

std::optional<Slice> Calls::take(ChannelId id, std::uint32_t upto) {
  Channel& from = channel(id);
  if (from.taken == from.queue.size()) return std::nullopt;
  const Place& place = from.queue[from.taken];
  if (place.op_index >= upto) return std::nullopt;
  if (place.movable && (preparing_ || from.taken >= kMostBegun)) return std::nullopt;
  ++from.taken;
  return slice_of(place);
}

std::optional<MessageLabel> Calls::label(ChannelId id, const SliceKey& key) const {
  const std::deque<Place>& queue = channel(id).queue;
  const auto place = std::ranges::find_if(
      queue, [&key](const Place& held) { return SliceKey{held.op_index, held.part} == key; });
  if (place != queue.end()) return label_of(slice_of(*place));
  const auto call = description(key.op_index);
  if (!call || id.repair || key.part > 0 || has_part(key.op_index, id.rail)) return std::nullopt;
  return MessageLabel{.call = *call, .slice_count = 0};
}

Slice Calls::slice_of(const Place& place) const {
  const Call& call = *find(place.op_index);
  const Piece& piece = *std::ranges::find(call.pieces, place.id, &Piece::id);
  const std::size_t at = piece.offset * item_size(call.description.dtype);
  Slice slice{.id = piece.id,
              .call = call.description,
              .input = call.input == nullptr ? nullptr : call.input + at,
              .output = call.output + at,
              .count = piece.count,
              .stride = is_sharded(call.description.collective) ? call.description.count : 0,
              .rank = rank_,
              .world_size = world_size_,
              .part = place.part};
  if (piece.fetch_from < 0) return slice;
  slice.call.collective = Collective::kBroadcast;
  slice.call.op = ReduceOp::kSum;
  slice.call.called = Called::kAsCarried;
  slice.call.root = static_cast<std::uint16_t>(piece.fetch_from);
  slice.input = slice.output;  // the root's result is here
  return slice;
}

std::optional<Calls::Finished> Calls::finish(ChannelId id, std::uint64_t slice, Time now) {
  Channel& on = channel(id);
  if (on.taken == 0 || on.queue.front().id != slice) return std::nullopt;
  Call& call = *find(on.queue.front().op_index);
  Piece& piece = *std::ranges::find(call.pieces, slice, &Piece::id);
  on.queue.pop_front();
  --on.taken;
  ++on.ended;
  piece.done = true;
  const bool last = piece.needed && --call.missing == 0;
  Finished finished{.op_index = call.description.op_index,
                    .bytes = tensor_bytes(call.description, piece.count, world_size_),
                    .start = std::max(call.submitted, std::exchange(on.free_since, now)),
                    .last = last};
  call.last_done = now;
  if (last) {
    if (call.memory.result) {
      deliveries_.push_back(finished.op_index);
    } else {
      complete(call);
    }
  }
  drop_finished();
  return finished;
}

Calls::Delivery Calls::next_delivery(std::size_t most) const {
  const Call& call = *find(deliveries_.front());
  const std::size_t left = bytes_of(call.description, rank_, world_size_).output - call.delivered;
  return {.op_index = call.description.op_index,
          .to = call.caller + call.delivered,
          .from = call.output + call.delivered,
          .bytes = std::min(left, most)};
}

void Calls::delivered(const Delivery& delivery) {
  Call& call = *find(delivery.op_index);
  call.delivered += delivery.bytes;
  if (call.delivered < bytes_of(call.description, rank_, world_size_).output) return;
  deliveries_.pop_front();
  complete(call);
  drop_finished();
}

void Calls::complete(Call& call) {
  call.complete = true;
  --pending_;
  while (const Call* next = find(completed_)) {
    if (!next->complete) break;
    ++completed_;
  }
}

void Calls::release(std::uint32_t op_index) {
  released_ = std::max(released_, op_index);
  drop_finished();
}

// A completed call may still have a piece that other ranks need: then its memory stays.
void Calls::drop_finished() {
  while (!calls_.empty()) {
    const Call& front = calls_.front();
    if (!front.complete || (keeping_ && first_ >= released_)) return;
    if (!std::all_of(front.pieces.begin(), front.pieces.end(), [](const Piece& p) { return p.done; })) return;
    calls_.pop_front();
    ++first_;
  }
}

std::vector<std::uint32_t> Calls::abort() {
  std::vector<std::uint32_t> pending;
  for (const Call& call : calls_) {
    if (!call.complete) pending.push_back(call.description.op_index);
  }
  for (std::size_t rail = 0; rail < main_.size(); ++rail) main_[rail] = repair_[rail] = {};
  calls_.clear();
  deliveries_.clear();
  standing_.clear();
  first_ = next_;
  pending_ = 0;
  return pending;
}

// ---------------------------------------------------------------- recovery

// Pieces that only other ranks need do not count, because this rank has their results already.
std::uint32_t Calls::reached(const Channel& channel) const {
  const auto needed =
      std::find_if(channel.queue.begin(), channel.queue.end(), [](const Place& p) { return p.needed; });
  return needed == channel.queue.end() ? next_ : needed->op_index;
}

// Counts places, because a call may have many pieces on a repair channel. Calls before the last boundary that
// are not submitted here yet may add pieces behind the present ones.
std::uint32_t Calls::repaired(const Channel& channel) const {
  const auto needed = std::ranges::find_if(channel.queue, &Place::needed);
  if (needed == channel.queue.end() && next_ >= last_boundary_) return kAllRepaired;
  return channel.ended + static_cast<std::uint32_t>(needed - channel.queue.begin());
}

// All ranks have the same pieces in the same order on a main channel.
std::uint32_t Calls::begun(const Channel& channel) const {
  const auto waiting = channel.queue.begin() + static_cast<std::ptrdiff_t>(channel.taken);
  const auto first = std::find_if(waiting, channel.queue.end(), [](const Place& p) { return p.movable; });
  return channel.ended + static_cast<std::uint32_t>(first - channel.queue.begin());
}

recovery::Position Calls::prepare(recovery::RailSet alive) {
  preparing_ = true;
  std::uint32_t waiting = 0;
  for (const Channel& main : main_) waiting += main.places() - begun(main);
  recovery::Position position{.submitted = next_};
  for (std::size_t rail = 0; rail < main_.size(); ++rail) {
    const Channel& main = main_[rail];
    position.main.push_back(!recovery::has(alive, rail)   ? reached(main)
                            : recovery::has(alive_, rail) ? begun(main)
                                                          : waiting);
    position.repair.push_back(repaired(repair_[rail]));
  }
  return position;
}

Cut Calls::cut_for(const recovery::Commit& commit) const {
  Cut cut{.commit = commit, .returns = (commit.alive & ~alive_) != 0};
  for (const Channel& main : main_) {
    cut.mains.push_back(main.places());
    cut.places.push_back(0);
  }
  for (const Call& call : calls_) {
    for (const Piece& piece : call.pieces) {
      if (!piece.repair) --cut.mains[piece.rail];
    }
  }
  return cut;
}

void Calls::apply(const recovery::Commit& commit) {
  preparing_ = false;
  Cut cut = cut_for(commit);
  for (std::size_t rail = 0; rail < main_.size(); ++rail) {
    repair_[rail] = {};
    if (!recovery::has(commit.alive, rail)) main_[rail] = {};
  }
  last_boundary_ = commit.boundary;
  alive_ = commit.alive;
  for (Call& call : calls_) {
    if (call.description.op_index >= commit.boundary) break;
    call.pieces = recut(call.description, world_size_, repair_rates_, call.complete, call.pieces, cut);
    enqueue(call);
    // A repeated piece overwrites the result, so the result is delivered again from its start.
    if (call.missing > 0 && std::erase(deliveries_, call.description.op_index) > 0) call.delivered = 0;
  }
  for (Channel& main : main_) std::erase_if(main.queue, [this](const Place& p) { return !holds(p); });
  if (commit.boundary > next_) standing_.push_back(std::move(cut));
  drop_finished();
}

// ---------------------------------------------------------------- questions

// Some indices below `next_` have no entry: a failing agent skips calls.
Calls::Call* Calls::find(std::uint32_t op_index) {
  return op_index >= first_ && op_index - first_ < calls_.size() ? &calls_[op_index - first_] : nullptr;
}

const Calls::Call* Calls::find(std::uint32_t op_index) const {
  return op_index >= first_ && op_index - first_ < calls_.size() ? &calls_[op_index - first_] : nullptr;
}

bool Calls::holds(const Place& place) const {
  const std::vector<Piece>& pieces = find(place.op_index)->pieces;
  return std::ranges::find(pieces, place.id, &Piece::id) != pieces.end();
}

bool Calls::pending(std::uint32_t op_index) const {
  const Call* call = find(op_index);
  return call != nullptr && !call->complete;
}

std::optional<CallDescription> Calls::description(std::uint32_t op_index) const {
  const Call* call = find(op_index);
  if (call == nullptr || call->complete) return std::nullopt;
  return call->description;
}

bool Calls::has_part(std::uint32_t op_index, std::size_t rail) const {
  const Call* call = find(op_index);
  return call != nullptr && std::any_of(call->parts.begin(), call->parts.end(),
                                        [rail](const Part& part) { return part.rail == rail; });
}

std::vector<std::size_t> Calls::lagging(std::uint32_t op_index) const {
  std::vector<std::size_t> rails;
  const Call* call = find(op_index);
  if (call == nullptr || call->complete) return rails;
  for (const Piece& piece : call->pieces) {
    if (piece.needed && !piece.done) rails.push_back(piece.rail);
  }
  return rails;
}

std::optional<Calls::Laggard> Calls::laggard(std::size_t rail) const {
  const Channel& channel = main_[rail];
  if (channel.taken == 0) return std::nullopt;
  const Call& call = *find(channel.queue.front().op_index);
  if (call.pieces.size() < 2 || call.missing != 1) return std::nullopt;
  // A rank may have come late. The end of the other pieces proves that all ranks have made the call.
  const Time all_there = call.expected > 0 ? call.last_done - call.expected : call.submitted;
  return Laggard{.rail = rail,
                 .op_index = call.description.op_index,
                 .others = call.last_done - call.submitted,
                 .expected = call.expected,
                 .since = std::max({call.submitted, channel.free_since, all_there})};
}

std::optional<Calls::Front> Calls::front(ChannelId id) const {
  const Channel& on = channel(id);
  if (on.taken == 0) return std::nullopt;
  const Place& place = on.queue.front();
  const Call& call = *find(place.op_index);
  const Piece& piece = *std::ranges::find(call.pieces, place.id, &Piece::id);
  return Front{.id = place.id,
               .op_index = place.op_index,
               .expected = id.repair ? repair_time(call.description, piece) : piece_time(call, piece),
               .alone = id.repair || piece.movable || call.pieces.size() == 1};
}

// A rail does its parts of a call one after the other, so each part gets its share of the expected time.
Duration Calls::piece_time(const Call& call, const Piece& piece) const {
  if (!piece.movable) return call.expected;
  std::size_t whole = 0;
  for (const Part& part : call.parts) whole += part.rail == piece.rail ? part.count : 0;
  return static_cast<Duration>(static_cast<double>(call.expected) * static_cast<double>(piece.count) /
                               static_cast<double>(whole));
}

// A ring sends each byte at most twice, and the main channel uses the same link.
Duration Calls::repair_time(const CallDescription& call, const Piece& piece) const {
  const std::uint64_t rate = repair_rates_[piece.rail];
  if (rate <= 1) return 0;
  const double seconds =
      4.0 * 8 * static_cast<double>(tensor_bytes(call, piece.count, world_size_)) / static_cast<double>(rate);
  return static_cast<Duration>(std::min(seconds, 1e6) * kSecond);
}

}  // namespace railweave
