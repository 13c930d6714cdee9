// SPDX-License-Identifier: Apache-2.0
#include "ina/endpoint.hpp"

#include <algorithm>
#include <bit>
#include <limits>
#include <numeric>
#include <stdexcept>
#include <utility>

#include "collectives/label.hpp"
#include "ina/fixed_point.hpp"
#include "ina/lanes.hpp"

namespace railweave::ina {
namespace {

constexpr std::uint32_t kMaxLanes = 2048;  // 8 KiB: a jumbo frame
constexpr std::uint32_t kFirstBurst = 2;
constexpr std::uint32_t kQuickRepeats = 4;  // transmissions a round trip apart; then intervals double
constexpr std::uint32_t kMaxDoublings = 3;  // of the interval
constexpr std::uint32_t kMaxReorderSteps = 8;
constexpr std::uint32_t kForgetReordering = 1024;  // results without a spurious retransmission
constexpr Duration kMinReorderWindow = 250 * kMicrosecond;
constexpr std::uint32_t kMostRefused = 4;     // wrong results of a chunk, after which its sum counts as wrong
constexpr std::uint32_t kMostRedone = 32;     // moves to repeat a chunk's sum
constexpr std::uint32_t kMostMismatches = 3;  // moves after which different marks are believed
constexpr Duration kDamageMemory = 60 * kSecond;  // older damage says nothing about the present
constexpr Stalled kSpoilt{.first_switch_ok = true, .root_ok = true, .spoilt = true};
constexpr std::int32_t kMaxIdentity = std::numeric_limits<std::int32_t>::min();

}  // namespace

const EndpointOptions& EndpointOptions::checked() const {
  auto demand = [](bool holds, const char* what) {
    if (!holds) throw std::invalid_argument(what);
  };
  demand(std::has_single_bit(slots) && slots <= kSlots / 2, "slots must be a power of two, at most 8192");
  demand(lanes >= 1 && lanes <= kMaxLanes, "lanes must be 1 to 2048");
  demand(child < kMaxChildren, "child must be 0 to 30");
  demand(world_size >= 1 && world_size <= kMaxWorldSize, "world size must be 1 to 1023");
  return *this;
}

WindowOptions EndpointOptions::capped_window() const {
  WindowOptions capped = window;
  capped.most = std::min(capped.most, slots);
  capped.least = std::min(capped.least, capped.most);
  return capped;
}

std::uint64_t EndpointStats::refused_in_all() const {
  return std::accumulate(refused.begin(), refused.end(), std::uint64_t{0});
}

Endpoint::Endpoint(const EndpointOptions& options)
    : options_(options.checked()),
      window_(options.capped_window()),
      flights_(packet_bytes(options.lanes)),
      fresh_(flights_),
      again_(flights_),
      lost_(flights_),
      burst_(kFirstBurst) {
  if (const auto& seal = options_.seal)
    seal_.emplace(seal->secret, seal->tree, seal->rank, options_.world_size, options_.lanes);
  data_lanes_ = data_lanes(options_.lanes, seal_.has_value());
  // Exponents come back one window after they were sent. With this lead, data never wait for them.
  lead_ = std::max(1u, (options_.slots + data_lanes_ - 1) / data_lanes_);
  flights_.grow(std::size_t{2} * options.slots, 0);
}

void Endpoint::start(const Slice& slice) {
  if (slice.count == 0) throw std::invalid_argument("a slice has at least one element");
  if (slice.world_size != options_.world_size)
    throw std::invalid_argument("the slice's world size is not the group's");
  if (!carries(slice.call))
    throw std::invalid_argument(
        "switches reduce float32, float16, bfloat16 and int32 with sum, avg, max and min; they move all "
        "types");
  if (dead_ || halted_) return;
  const CallOptions options{.lanes = data_lanes_,
                            .lead = lead_,
                            .wide = options_.lanes,
                            .multicast = spread_bytes_ > 0,
                            .sealed = seal_.has_value()};
  if (!calls_.emplace_back(slice, options).spread()) return;
  const std::uint64_t task = next_task_++;
  spreads_.push_back({.call = first_call_ + calls_.size() - 1, .task = task});
  for (auto before = calls_.rbegin() + 1; before != calls_.rend() && !before->followed_by(); ++before)
    before->follow(task);
}

std::uint16_t Endpoint::slot_field(std::uint64_t chunk) const {
  const std::uint64_t number = chunk - base_;
  return static_cast<std::uint16_t>(number % options_.slots * 2 + number / options_.slots % 2);
}

std::uint32_t Endpoint::round_field(std::uint64_t chunk) const {
  return static_cast<std::uint32_t>((chunk - base_) / options_.slots / 2);
}

// --- sending ---

Bytes Endpoint::transmit(Time now) {
  if (quiet()) return {};
  if (const Bytes probe = prober_.transmit(options_.group, options_.child, now); !probe.empty()) {
    ++stats_.probes_sent;
    return probe;
  }
  return lost_.empty() ? transmit_next(now) : transmit_again(now);
}

Bytes Endpoint::transmit_again(Time now) {
  const std::uint32_t index = lost_.front();
  lost_.remove(index);
  std::byte* const bytes = flights_.packet_by_index(index);
  Header header = decode(bytes);
  header.flags |= flag::kRetransmission;
  encode(header, bytes);
  ++stats_.retransmissions;
  if (!flights_.by_index(index).after_timeout) ++stats_.early_retransmissions;
  return depart(index, now);
}

/// The call that has the next item of the group's sequence; null if there is no such call.
Call* Endpoint::issuing() {
  while (issuing_call_ < first_call_ + calls_.size() && call(issuing_call_).exhausted()) ++issuing_call_;
  return issuing_call_ < first_call_ + calls_.size() ? &call(issuing_call_) : nullptr;
}

Bytes Endpoint::transmit_next(Time now) {
  const std::uint64_t chunk = next_sent_;
  const bool free =
      chunk - first() < options_.slots || flights_.at(chunk - options_.slots).state == FlightState::kDone;
  if (!free) return {};
  const bool built = chunk < next_built_;  // after a move
  if (!built && (issuing() == nullptr || !issuing()->next())) return {};
  if (!window_.open(chunk - base_, in_network())) return {};
  if (!built) build();
  std::byte* const bytes = flights_.packet(chunk);
  Header header = decode(bytes);
  header.group = options_.group;
  header.child = options_.child;
  header.flags &= static_cast<std::uint8_t>(~flag::kRetransmission);
  header.slot = slot_field(chunk);
  header.round = round_field(chunk);
  encode(header, bytes);
  ++next_sent_;
  ++stats_.contributions;
  return depart(flights_.index(chunk), now);
}

/// The number of packets that may be in queues. Packets sent before the newest one with a result have left
/// the queues. They are lost, or wait for a rank.
std::uint64_t Endpoint::in_network() const {
  return std::min<std::uint64_t>(in_flight(), next_transmission_ - 1 - newest_delivered_);
}

/// Builds the packet of the next item. The group's fields are set when it departs.
void Endpoint::build() {
  Call& from = *issuing();
  const Item item = *from.next();
  std::byte* const bytes = flights_.packet(next_built_);
  if (item.phase == Phase::kReady)
    from.set_ready({.unfinished = unfinished_spreads(), .chunk_bytes = spread_bytes_});
  Header header{.kind = static_cast<std::uint8_t>(Kind::kContribute),
                .op = static_cast<std::uint8_t>(from.wire_op(item)),
                .mark = from.mark()};
  header.flags = from.build(item, bytes + kHeaderBytes);
  Flight& flight =
      flights_.at(next_built_) = {.keeps = from.keeps(item), .call = issuing_call_, .item = item};
  if (seal_) seal(flight, header, bytes + kHeaderBytes);
  if (spread_bytes_ > 0 && !from.followed_by()) header.flags |= flag::kLast;
  encode(header, bytes);
  ++next_built_;
  if (item.phase == Phase::kClasses) ++stats_.nonfinite_chunks;
}

/// Sums are sealed, and small maxima tagged. A sum of which this rank owns the result is not sent, so it
/// needs no seal.
void Endpoint::seal(Flight& flight, Header& header, std::byte* lanes) {
  const Call& from = call(flight.call);
  const std::uint64_t identity = seal_->identity(label_of(from.slice()), flight.item);
  header.mark = seal_->mark(next_built_, identity);
  const bool sums = header.op == static_cast<std::uint8_t>(WireOp::kSum);
  if (sums) {
    flight.pads = seal_->pads(next_built_, seal_->bind(identity, from.made_from(flight.item)));
  } else {
    seal_->tag_maxima(lanes, from.small_maxima(flight.item), next_built_);
  }
  if (!sums || (header.flags & flag::kOwner))
    return fill_lanes(lanes, data_lanes_, options_.lanes, kMaxIdentity);
  seal_->close(lanes, from.counts(flight.item, header.flags), flight.pads);
}

Bytes Endpoint::depart(std::uint32_t index, Time now) {
  Flight& flight = flights_.by_index(index);
  flight.state = FlightState::kInFlight;
  flight.sent = next_transmission_++;
  flight.sent_at = now;
  (++flight.transmissions == 1 ? fresh_ : again_).push_back(index);
  if (silent_at_ == kNever) {
    silent_since_ = now;
    silent_at_ = now + window_.rto(now);
  }
  const std::byte* const bytes = flights_.packet_by_index(index);
  const bool bare = decode(bytes).flags & flag::kOwner;
  return {bytes, bare ? kHeaderBytes : packet_bytes(options_.lanes)};
}

// --- receiving ---

void Endpoint::receive(Bytes datagram, Time now) {
  if (dead_) return;
  if (datagram.size() < kHeaderBytes) return refuse(Refusal::kShort);
  const Header header = decode(datagram.data());
  if (header.version != kVersion) return refuse(Refusal::kVersion);
  if (paused_ || halted_ || (header.group != options_.group && header.group == left_group_)) {
    ++stats_.stale;
    return;
  }
  if (header.group != options_.group) return refuse(Refusal::kGroup);
  if (header.child != options_.child) return refuse(Refusal::kChild);
  if (header.kind == static_cast<std::uint8_t>(Kind::kProbe)) return receive_probe(header, now);
  if (header.kind != static_cast<std::uint8_t>(Kind::kResult)) return refuse(Refusal::kKind);
  const Bytes lanes = datagram.subspan(kHeaderBytes);
  const bool bare = lanes.empty() && (header.flags & flag::kOwner);
  if (!bare && datagram.size() != packet_bytes(options_.lanes)) return refuse(Refusal::kLength);
  receive_result(header, lanes, now);
}

void Endpoint::receive_probe(const Header& header, Time now) {
  Duration round_trip = 0;
  switch (prober_.receive(header, now, round_trip)) {
    case ProbeAnswer::kUnsent:
      return refuse(Refusal::kUnsent);
    case ProbeAnswer::kLate:
      ++stats_.duplicates;
      return;
    case ProbeAnswer::kNew:
      ++stats_.probes_answered;
      window_.path_sample(round_trip);
      return;
  }
}

void Endpoint::receive_result(const Header& header, Bytes lanes, Time now) {
  const std::uint32_t slot = header.slot >> 1;
  if (slot >= options_.slots) return refuse(Refusal::kSlot);
  const std::uint64_t sent = next_sent_ - base_;
  if (sent <= slot) return refuse(Refusal::kUnsent);
  // How often the slot has been used: 33 bits on the wire, 32 of the round and the copy.
  const std::uint64_t uses = (sent - 1 - slot) / options_.slots;
  const std::uint64_t claimed = std::uint64_t{header.round} << 1 | (header.slot & 1);
  const auto ahead = static_cast<std::int64_t>((claimed - uses) << 31);
  if (ahead > 0) return refuse(Refusal::kUnsent);
  const std::uint64_t chunk = base_ + uses * options_.slots + slot;
  if (chunk < floor_) {
    ++stats_.stale;
    return;
  }
  if (ahead == 0 && flights_.at(chunk).state != FlightState::kDone) return accept(chunk, header, lanes, now);
  ++stats_.duplicates;
}

void Endpoint::accept(std::uint64_t chunk, const Header& header, Bytes lanes, Time now) {
  Flight& flight = flights_.at(chunk);
  std::byte* const packet = flights_.packet(chunk);
  const Header own = decode(packet);
  if (header.mark != own.mark && seal_ && !seal_->by_member(chunk, header.mark)) {
    damaged_at_ = now;  // or forged, so it does not end the call
    return refuse(Refusal::kMark);
  }
  if (!flight.held && (header.flags & flag::kMismatch)) {
    // With this rank's own mark, the flag may be a bit damaged on the way here. That hardly happens twice.
    if (seal_ && header.mark == own.mark && flight.refused == 0) return refuse_lanes(chunk, now);
    // A mark may have been damaged on the way up. That hardly repeats in other slots, after moves.
    if (options_.redo_within == 0 || (!flight.redo && flight.mismatches++ == kMostMismatches))
      return fail(mismatch(call(flight.call)));
    return redo(flight, mismatch(call(flight.call)), now);
  }
  if (header.mark != own.mark) return refuse(Refusal::kMark);
  if (header.op != own.op) return refuse(Refusal::kOp);
  if (lanes.empty() == flight.keeps) return refuse(Refusal::kLength);
  // A result that is held from before a move needs no lanes. Here it only shows that the slot is free.
  if (seal_ && !flight.held && !lanes.empty() && !proven(chunk, own, header, lanes))
    return refuse_lanes(chunk, now);
  ++stats_.results;
  FlightList& list = flight.transmissions == 1 ? fresh_ : again_;
  (flight.state == FlightState::kLost ? lost_ : list).remove(flights_.index(chunk));
  flight.state = FlightState::kDone;
  note_gap(flight, now);
  learn(flight, now);
  detect_losses(now);
  if (flight.held) return;  // before a move
  flight.held = true;
  const std::byte* values = lanes.data();
  Call& owner = call(flight.call);
  const bool sums = own.op == static_cast<std::uint8_t>(WireOp::kSum);
  std::uint8_t flags = header.flags;
  Counts counts{};
  if (seal_ && sums && !lanes.empty()) {
    counts = seal_->counts(values);
    if (own.flags & flag::kOwner) counts += owner.counts(flight.item, own.flags);
    flags = (counts.nonfinite > 0 ? flag::kNonfinite : 0) | (counts.overflowing > 0 ? flag::kOverflow : 0);
  } else if (seal_ && !sums) {
    owner.note_maxima(flight.item, packet + kHeaderBytes, values, seal_->digest(flight.item.index, values));
  }
  if (own.flags & flag::kOwner) {
    std::byte* const kept = packet + kHeaderBytes;
    const auto merge = sums ? merge_sum : merge_max;
    merge(values, data_lanes_, kept);
    values = kept;
  }
  if (!owner.absorb(flight.item, flags, values, counts))
    return fail(wrong_sums("exponents or maxima that no rank has"));
  if (flight.item.phase == Phase::kWide || flight.item.phase == Phase::kExponents)
    stats_.error_bound = std::max(stats_.error_bound, owner.error_bound());
  while (position_ < next_built_ && flights_.at(position_).held) ++position_;
  if (flight.item.phase == Phase::kReady) announce_spreads();
  if (!(header.flags & flag::kLast) && owner.followed_by()) enter(*owner.followed_by());
  finish_calls(flight.call);
}

/// Whether the lanes can be the result of the ranks' contributions. Sums must have the seal. Maxima must be
/// at least this rank's own, and small maxima must have their tags.
bool Endpoint::proven(std::uint64_t chunk, const Header& own, const Header& header, Bytes lanes) const {
  if (header.op == static_cast<std::uint8_t>(WireOp::kSum))
    return seal_->holds(lanes.data(), flights_.at(chunk).pads, (own.flags & flag::kOwner) != 0);
  const Flight& flight = flights_.at(chunk);
  return at_least(lanes.data(), flights_.packet(chunk) + kHeaderBytes, data_lanes_) &&
         seal_->tagged(lanes.data(), calls_[flight.call - first_call_].small_maxima(flight.item), chunk);
}

/// Asks for the lanes again at once, because the switch may have the right ones.
void Endpoint::refuse_lanes(std::uint64_t chunk, Time now) {
  refuse(Refusal::kSeal);
  damaged_at_ = now;
  Flight& flight = flights_.at(chunk);
  if (++flight.refused >= kMostRefused) {
    const std::string what = " results of one chunk that do not have the ranks' seal";
    return redo(flight, wrong_sums(std::to_string(kMostRefused) + what), now);
  }
  if (flight.state != FlightState::kInFlight) return;
  (flight.transmissions == 1 ? fresh_ : again_).remove(flights_.index(chunk));
  lost_.push_back(flights_.index(chunk));
  flight.state = FlightState::kLost;
  flight.after_timeout = false;
}

/// The slot's sum is wrong. After a move the ranks contribute to the chunk again, from the packets that they
/// have kept. The timer asks for the result until then, because a contribution may still be under way.
void Endpoint::redo(Flight& flight, Failure otherwise, Time now) {
  if (flight.redo) return;
  if (options_.redo_within == 0 || flight.redone == kMostRedone) return fail(std::move(otherwise));
  flight.redo = true;
  ++flight.redone;
  if (redo_) return;
  redo_ = {.until = now + options_.redo_within, .otherwise = std::move(otherwise)};
  events_.emplace_back(kSpoilt);
}

/// Whether a chunk still waits for a move. A right result may have come meanwhile.
bool Endpoint::awaits_redo() const {
  for (std::uint64_t chunk = position_; chunk < next_sent_; ++chunk)
    if (flights_.at(chunk).redo && !flights_.at(chunk).held) return true;
  return false;
}

Failure Endpoint::wrong_sums(const std::string& what) const {
  return {.kind = FailureKind::kSilent,
          .rank = -1,
          .message = "group " + std::to_string(options_.group) + " brought " + what +
                     ": a link or a switch damages packets, or a stranger forges them"};
}

Failure Endpoint::mismatch(const Call& owner) const {
  return {.kind = FailureKind::kMismatch,
          .rank = -1,
          .message = "this rank called " + describe(label_of(owner.slice())) +
                     " while another rank of the group called something else; all ranks must make the "
                     "same calls in the same order, with the same length, dtype and op",
          .op_index = owner.slice().call.op_index};
}

/// After a call's first result, only a late rank or switch delays results for long, because a lost chunk does
/// not delay others. The first result after a gap may be of a chunk that the timer has sent again. Only the
/// result of a chunk that was sent once, before the gap, shows that nothing was lost.
void Endpoint::note_gap(const Flight& flight, Time now) {
  const Duration gap = now - std::exchange(result_at_, now);
  if (gap > gap_) gap_ = gap;
  if (flight.held || !call(flight.call).begun()) {
    gap_ = 0;
  } else if (flight.transmissions == 1) {
    if (flight.sent_at <= now - gap_) window_.late(gap_, now - flight.sent_at, now);
    gap_ = 0;
  }
}

void Endpoint::learn(const Flight& flight, Time now) {
  prober_.alive(now);
  window_.progress();
  if (silence_) progress_resumed_at_ = now;
  silence_ = false;
  if (stats_.results % kForgetReordering == 0 && reorder_steps_ > 1) --reorder_steps_;
  // A chunk that was sent again says nothing about order or time. Its result may answer any transmission of
  // any rank.
  if (flight.transmissions == 1) {
    if (flight.sent > newest_delivered_) {
      newest_delivered_ = flight.sent;
      newest_rtt_ = now - flight.sent_at;
    }
    if (flight.sent >= untimed_before_)
      window_.sample(now - flight.sent_at, flight.sent, next_transmission_, now);
  }
  // Faster than any path, so the result was already under way, and patience was too short.
  if (flight.transmissions > 1 && now - flight.sent_at < window_.least_rtt()) {
    ++stats_.spurious;
    reorder_steps_ = std::min(reorder_steps_ + 1, kMaxReorderSteps);
  }
  burst_ = flight.after_timeout ? std::min(4 * burst_, options_.slots) : kFirstBurst;
  const bool waiting = in_flight() > 0 || !lost_.empty();
  silent_since_ = now;
  silent_at_ = waiting ? now + window_.rto(now) : kNever;
}

void Endpoint::finish_calls(std::uint64_t number) {
  if (!call(number).complete()) return;
  while (!calls_.empty() && calls_.front().complete()) {
    events_.emplace_back(SliceDone{calls_.front().slice().id});
    calls_.pop_front();
    ++first_call_;
  }
  issuing_call_ = std::max(issuing_call_, first_call_);
}

/// How many spread calls are not done here, from the oldest unfinished one up to the call being issued.
std::uint32_t Endpoint::unfinished_spreads() const {
  std::uint32_t count = 0;
  for (std::uint64_t number = first_call_; number < issuing_call_; ++number) {
    const Call& each = calls_[number - first_call_];
    if (each.spread() && (count > 0 || !each.placed())) ++count;
  }
  return count;
}

/// All ranks have begun the task.
void Endpoint::enter(std::uint64_t task) {
  if (spreads_.empty() || task < spreads_.front().task) return;
  spreads_[task - spreads_.front().task].entered = true;
  announce_spreads();
}

/// Announces spread calls in their order, also if results come in another order. An early announcement has
/// the packet size of the READY before. Only the call's own READY tells what ranks lack of earlier tasks.
void Endpoint::announce_spreads() {
  for (; !spreads_.empty() && call(spreads_.front().call).begun(); spreads_.pop_front()) {
    const Spread& spread = spreads_.front();
    const Call& owner = call(spread.call);
    ready_bytes_ = owner.ready().chunk_bytes;
    ready_.push_back({spread.task, owner.slice(), owner.ready(), spread.announced});
  }
  if (spreads_.empty() || !spreads_.front().entered || ready_bytes_ == 0) return;
  Spread& next = spreads_.front();
  if (std::exchange(next.announced, true)) return;
  const Ready all{.unfinished = ~std::uint32_t{0}, .chunk_bytes = ready_bytes_};
  ready_.push_back({next.task, call(next.call).slice(), all, /*begun=*/false});
}

void Endpoint::spread_done(std::uint64_t slice_id) {
  for (std::uint64_t number = first_call_; number < first_call_ + calls_.size(); ++number) {
    if (call(number).slice().id != slice_id) continue;
    call(number).place();
    return finish_calls(number);
  }
}

// --- losses ---

/// How late a result may come after that of a later transmission. Wider after spurious retransmissions.
Duration Endpoint::reorder_window() const {
  return std::max(kMinReorderWindow, window_.smoothed_rtt() / 8 * reorder_steps_);
}

/// How long to wait after a retransmission. Another rank may have to send the chunk again, too.
Duration Endpoint::patience(const Flight& flight) const {
  const std::uint32_t slow = std::max(flight.transmissions, kQuickRepeats) - kQuickRepeats;
  const Duration rtt = window_.smoothed_rtt();
  return std::max({rtt * 5 / 4, rtt + reorder_window(), options_.window.longest_wait})
         << std::min(slow, kMaxDoublings);
}

/// When the first chunk of a list counts as lost; kNever if only more results can tell.
Time Endpoint::due(const FlightList& list) const {
  if (list.empty() || silence_) return kNever;
  const Flight& oldest = flights_.by_index(list.front());
  if (oldest.transmissions > 1) return std::max(oldest.sent_at, progress_resumed_at_) + patience(oldest);
  const bool overtaken = oldest.sent + options_.reorder <= newest_delivered_;
  return overtaken ? oldest.sent_at + newest_rtt_ + reorder_window() : kNever;
}

/// The list whose first chunk was sent earlier, so that all chunks have their turn.
FlightList& Endpoint::earlier(FlightList& a, FlightList& b) {
  if (a.empty() || b.empty()) return a.empty() ? b : a;
  return flights_.by_index(a.front()).sent < flights_.by_index(b.front()).sent ? a : b;
}

void Endpoint::detect_losses(Time now) {
  for (FlightList* list : {&fresh_, &again_}) {
    while (due(*list) <= now) declare_lost(*list, /*after_timeout=*/false);
  }
}

void Endpoint::declare_lost(FlightList& list, bool after_timeout) {
  const std::uint32_t index = list.front();
  list.remove(index);
  lost_.push_back(index);
  flights_.by_index(index).state = FlightState::kLost;
  flights_.by_index(index).after_timeout = after_timeout;
}

// --- time and ends ---

Time Endpoint::deadline() const {
  if (quiet()) return kNever;
  return std::min({silent_at_, due(fresh_), due(again_), redo_ ? redo_->until : kNever});
}

void Endpoint::expire(Time now) {
  if (quiet()) return;
  if (redo_ && now >= redo_->until) {
    if (awaits_redo()) return fail(std::move(redo_->otherwise));
    redo_.reset();
  }
  detect_losses(now);
  if (now >= silent_at_) expire_silence(now);
}

void Endpoint::expire_silence(Time now) {
  ++stats_.timeouts;
  silence_ = true;
  if (const auto stalled = prober_.stalled(now, options_.stall_after); stalled && now >= stall_due_) {
    ++stats_.stalls;
    stall_due_ = now + options_.stall_every;
    events_.emplace_back(*stalled);
  }
  // A slot keeps the mark of its first contribution and refuses older rounds, also if that contribution was
  // damaged. A late rank looks the same, so moves are requested rarely.
  const bool damaged = damaged_at_ && now - *damaged_at_ < kDamageMemory;
  const bool may_move = options_.redo_within > 0 && now >= redo_due_;
  if (damaged && may_move && now - silent_since_ >= options_.stall_after) {
    redo_due_ = now + options_.stall_every;
    events_.emplace_back(kSpoilt);
  }
  window_.back_off(now);
  untimed_before_ = next_transmission_;
  for (std::uint32_t i = 0; i < burst_ && in_flight() > 0; ++i)
    declare_lost(earlier(fresh_, again_), /*after_timeout=*/true);
  prober_.silence(now);
  silent_at_ = now + window_.rto(now);
}

std::optional<Event> Endpoint::poll() {
  if (events_.empty()) return std::nullopt;
  Event event = std::move(events_.front());
  events_.pop_front();
  return event;
}

std::optional<SpreadReady> Endpoint::poll_ready() {
  if (ready_.empty()) return std::nullopt;
  const SpreadReady ready = ready_.front();
  ready_.pop_front();
  return ready;
}

void Endpoint::fail(Failure failure) {
  stop();
  events_.emplace_back(std::move(failure));
}

void Endpoint::abort() {
  stop();
  events_.clear();
}

void Endpoint::stop() {
  dead_ = true;
  first_call_ += calls_.size();
  issuing_call_ = first_call_;
  calls_.clear();
  spreads_.clear();
  ready_.clear();
  ready_bytes_ = 0;
}

}  // namespace railweave::ina
