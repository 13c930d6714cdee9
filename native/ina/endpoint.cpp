// SPDX-License-Identifier: Apache-2.0
#include "ina/endpoint.hpp"

#include <algorithm>
#include <bit>
#include <numeric>
#include <stdexcept>
#include <string>

#include "collectives/label.hpp"
#include "ina/fixed_point.hpp"

namespace railweave::ina {
namespace {

constexpr std::uint32_t kMaxLanes = 2048;  // 8 KiB: a jumbo frame
constexpr std::uint32_t kFirstBurst = 2;

const EndpointOptions& checked(const EndpointOptions& options) {
  auto demand = [](bool holds, const char* what) {
    if (!holds) throw std::invalid_argument(what);
  };
  demand(std::has_single_bit(options.slots) && options.slots <= kSlots / 2,
         "slots must be a power of two, at most 8192");
  demand(options.lanes >= 1 && options.lanes <= kMaxLanes, "lanes must be 1 to 2048");
  demand(options.child < kMaxChildren, "child must be 0 to 30");
  demand(options.world_size >= 1 && options.world_size <= kMaxWorldSize, "world size must be 1 to 1023");
  return options;
}

WindowOptions capped(WindowOptions options, std::uint32_t slots) {
  options.most = std::min(options.most, slots);
  options.least = std::min(options.least, options.most);
  return options;
}

}  // namespace

std::uint64_t EndpointStats::refused_in_all() const {
  return std::accumulate(refused.begin(), refused.end(), std::uint64_t{0});
}

Endpoint::Endpoint(const EndpointOptions& options)
    : options_(checked(options)),
      window_(capped(options.window, options.slots)),
      packets_(options.slots * packet_bytes(options.lanes)),
      flights_(options.slots),
      in_flight_(flights_),
      lost_(flights_),
      burst_(kFirstBurst) {}

void Endpoint::start(const Slice& slice) {
  if (slice.count == 0) throw std::invalid_argument("a slice has at least one element");
  if (slice.world_size != options_.world_size)
    throw std::invalid_argument("the slice's world size is not the group's");
  if (dead_) return;
  // Exponents come back a window after they were sent; so far ahead, data never wait for them.
  const std::uint32_t lead = std::max(1u, (options_.slots + options_.lanes - 1) / options_.lanes);
  calls_.emplace_back(slice, options_.lanes, lead);
}

std::uint16_t Endpoint::slot_field(std::uint64_t chunk) const {
  return static_cast<std::uint16_t>(chunk % options_.slots * 2 + chunk / options_.slots % 2);
}

std::uint32_t Endpoint::round_field(std::uint64_t chunk) const {
  return static_cast<std::uint32_t>(chunk / options_.slots / 2);
}

// --- sending ---

Bytes Endpoint::transmit(Time now) {
  if (dead_) return {};
  if (probe_due_) return transmit_probe(now);
  if (!lost_.empty()) return transmit_again(now);
  return transmit_next(now);
}

Bytes Endpoint::transmit_probe(Time now) {
  probe_due_ = false;
  probe_sent_at_ = now;
  encode({.kind = static_cast<std::uint8_t>(Kind::kProbe),
          .group = options_.group,
          .child = options_.child,
          .round = ++probe_number_},
         probe_.data());
  ++stats_.probes_sent;
  return probe_;
}

Bytes Endpoint::transmit_again(Time now) {
  const std::uint32_t slot = lost_.front();
  lost_.remove(slot);
  std::byte* const bytes = packet(slot);
  Header header = decode(bytes);
  header.flags |= flag::kRetransmission;
  encode(header, bytes);
  ++stats_.retransmissions;
  if (!flights_[slot].after_timeout) ++stats_.early_retransmissions;
  return depart(slot, now);
}

/// The call whose item comes next in the group's sequence; null if there is none.
Call* Endpoint::issuing() {
  while (issuing_call_ < first_call_ + calls_.size() && call(issuing_call_).exhausted()) ++issuing_call_;
  return issuing_call_ < first_call_ + calls_.size() ? &call(issuing_call_) : nullptr;
}

Bytes Endpoint::transmit_next(Time now) {
  const auto slot = static_cast<std::uint32_t>(next_chunk_ % options_.slots);
  Flight& flight = flights_[slot];
  const bool free = flight.state == FlightState::kUnused || flight.state == FlightState::kDone;
  Call* const from = free ? issuing() : nullptr;
  const std::optional<Item> item = from ? from->next() : std::nullopt;
  if (!item) return {};
  if (in_flight_.size() >= window_.size()) {
    window_.limited();
    return {};
  }
  Header header{.kind = static_cast<std::uint8_t>(Kind::kContribute),
                .op = static_cast<std::uint8_t>(from->wire_op(*item)),
                .group = options_.group,
                .child = options_.child,
                .slot = slot_field(next_chunk_),
                .round = round_field(next_chunk_),
                .mark = from->mark()};
  header.flags = from->build(*item, packet(slot) + kHeaderBytes);
  encode(header, packet(slot));
  flight = {.chunk = next_chunk_++, .call = issuing_call_, .item = *item};
  ++stats_.contributions;
  if (item->phase == Phase::kClasses) ++stats_.nonfinite_chunks;
  return depart(slot, now);
}

Bytes Endpoint::depart(std::uint32_t slot, Time now) {
  Flight& flight = flights_[slot];
  flight.state = FlightState::kInFlight;
  flight.sent = next_transmission_++;
  flight.sent_at = now;
  ++flight.transmissions;
  in_flight_.push_back(slot);
  if (timer_ == kNever) timer_ = now + window_.rto();
  return {packet(slot), packet_bytes(options_.lanes)};
}

// --- receiving ---

void Endpoint::receive(Bytes datagram, Time now) {
  if (dead_) return;
  if (datagram.size() < kHeaderBytes) return refuse(Refusal::kShort);
  const Header header = decode(datagram.data());
  if (header.version != kVersion) return refuse(Refusal::kVersion);
  if (header.group != options_.group) return refuse(Refusal::kGroup);
  if (header.child != options_.child) return refuse(Refusal::kChild);
  if (header.kind == static_cast<std::uint8_t>(Kind::kProbe)) return receive_probe(header, now);
  if (header.kind != static_cast<std::uint8_t>(Kind::kResult)) return refuse(Refusal::kKind);
  if (datagram.size() != packet_bytes(options_.lanes)) return refuse(Refusal::kLength);
  receive_result(header, datagram.data() + kHeaderBytes, now);
}

void Endpoint::receive_probe(const Header& header, Time now) {
  const auto age = static_cast<std::int32_t>(probe_number_ - header.round);
  if (age < 0 || header.round == 0) return refuse(Refusal::kUnsent);
  silent_since_ = kNever;
  if (age > 0 || probe_sent_at_ == kNever) {
    ++stats_.duplicates;
    return;
  }
  ++stats_.probes_answered;
  window_.path_sample(now - probe_sent_at_);
  probe_sent_at_ = kNever;
}

void Endpoint::receive_result(const Header& header, const std::byte* lanes, Time now) {
  const std::uint32_t slot = header.slot >> 1;
  if (slot >= options_.slots) return refuse(Refusal::kSlot);
  const Flight& flight = flights_[slot];
  if (flight.state == FlightState::kUnused) return refuse(Refusal::kUnsent);
  // How often the slot has been used, as 33 bits on the wire: 32 of the round and the copy.
  const std::uint64_t uses = flight.chunk / options_.slots;
  const std::uint64_t claimed = std::uint64_t{header.round} << 1 | (header.slot & 1);
  const auto ahead = static_cast<std::int64_t>((claimed - uses) << 31);
  if (ahead > 0) return refuse(Refusal::kUnsent);
  if (ahead < 0 || flight.state == FlightState::kDone) {
    ++stats_.duplicates;
    return;
  }
  accept(slot, header, lanes, now);
}

void Endpoint::accept(std::uint32_t slot, const Header& header, const std::byte* lanes, Time now) {
  Flight& flight = flights_[slot];
  Call& owner = call(flight.call);
  if (header.flags & flag::kMismatch) {
    return fail({.kind = FailureKind::kMismatch,
                 .rank = -1,
                 .message = "this rank called " +
                            describe(MessageLabel{owner.slice().call, owner.slice().count}) +
                            " while another rank of the group called something else; all ranks must make the "
                            "same calls in the same order, with the same length, dtype and op"});
  }
  if (header.mark != owner.mark()) return refuse(Refusal::kMark);
  if (header.op != static_cast<std::uint8_t>(owner.wire_op(flight.item))) return refuse(Refusal::kOp);
  ++stats_.results;
  (flight.state == FlightState::kLost ? lost_ : in_flight_).remove(slot);
  flight.state = FlightState::kDone;
  owner.absorb(flight.item, header.flags, lanes);
  learn(flight, now);
  detect_losses(now);
  finish_calls(flight.call);
}

void Endpoint::learn(const Flight& flight, Time now) {
  silent_since_ = kNever;
  window_.progress();
  // What was sent again says nothing about order or time: the result may answer any transmission, of any
  // rank.
  if (flight.transmissions == 1) {
    newest_delivered_ = std::max(newest_delivered_, flight.sent);
    if (flight.sent >= untimed_before_) window_.sample(now - flight.sent_at, flight.sent, next_transmission_);
  }
  burst_ = flight.after_timeout ? std::min(4 * burst_, options_.slots) : kFirstBurst;
  const bool waiting = !in_flight_.empty() || !lost_.empty();
  timer_ = waiting ? now + window_.rto() : kNever;
}

void Endpoint::detect_losses(Time now) {
  while (!in_flight_.empty()) {
    const Flight& oldest = flights_[in_flight_.front()];
    const bool overtaken = oldest.sent + options_.reorder <= newest_delivered_;
    // The result of a chunk sent again may wait for another rank to send it again too: give that a round
    // trip.
    const bool due = oldest.transmissions == 1 || now - oldest.sent_at >= window_.smoothed_rtt();
    if (!overtaken || !due) return;
    mark_lost(in_flight_.front(), /*after_timeout=*/false);
  }
}

void Endpoint::mark_lost(std::uint32_t slot, bool after_timeout) {
  in_flight_.remove(slot);
  lost_.push_back(slot);
  flights_[slot].state = FlightState::kLost;
  flights_[slot].after_timeout = after_timeout;
}

void Endpoint::finish_calls(std::uint64_t number) {
  if (!call(number).complete()) return;
  events_.emplace_back(SliceDone{call(number).slice().call.op_index});
  while (!calls_.empty() && calls_.front().complete()) {
    calls_.pop_front();
    ++first_call_;
  }
  issuing_call_ = std::max(issuing_call_, first_call_);
}

// --- time and ends ---

void Endpoint::expire(Time now) {
  if (dead_ || now < timer_) return;
  ++stats_.timeouts;
  if (silent_since_ == kNever) silent_since_ = now;
  if (now - silent_since_ >= options_.silence_limit) {
    return fail({.kind = FailureKind::kRailDown,
                 .rank = -1,
                 .message = "for " + std::to_string((now - silent_since_) / kMillisecond) +
                            " ms the switch has answered neither contributions nor probes"});
  }
  window_.back_off();
  untimed_before_ = next_transmission_;
  for (std::uint32_t i = 0; i < burst_ && !in_flight_.empty(); ++i)
    mark_lost(in_flight_.front(), /*after_timeout=*/true);
  probe_due_ = true;
  timer_ = now + window_.rto();
}

std::optional<Event> Endpoint::poll() {
  if (events_.empty()) return std::nullopt;
  Event event = std::move(events_.front());
  events_.pop_front();
  return event;
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
  timer_ = kNever;
  calls_.clear();
}

}  // namespace railweave::ina
