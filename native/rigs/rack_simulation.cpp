// SPDX-License-Identifier: Apache-2.0
#include "rigs/rack_simulation.hpp"

#include <algorithm>
#include <limits>
#include <utility>
#include <variant>

#include "ina/lanes.hpp"

namespace railweave::ina {
namespace {

constexpr std::uint16_t kGroup = 1;
// Of a link. A ring message to another rack crosses four links, in twice the time of a packet, which crosses
// two.
constexpr Duration kMostDelay = 50 * kMicrosecond;

}  // namespace

SimulatedRack::SimulatedRack(SimulatedNetwork& network, const RackOptions& options, std::uint64_t seed,
                             OnDone done, OnFailure failure)
    : network_(network),
      options_(options),
      random_(seed),
      done_(std::move(done)),
      failure_(std::move(failure)) {
  for (int place = 0; place < options.ranks; ++place)
    hosts_.emplace_back(EndpointOptions{.group = kGroup,
                                        .child = static_cast<std::uint8_t>(place),
                                        .slots = options.slots,
                                        .lanes = options.lanes,
                                        .world_size = options.ranks});
}

void SimulatedRack::start(int place, const Slice& slice) {
  hosts_[static_cast<std::size_t>(place)].endpoint.start(slice);
  network_.after(0, [this, place] { pump(place); });
}

void SimulatedRack::halt(int place) { hosts_[static_cast<std::size_t>(place)].endpoint.halt(); }
void SimulatedRack::abort(int place) { hosts_[static_cast<std::size_t>(place)].endpoint.abort(); }

void SimulatedRack::restart() {
  std::uint64_t base = 0;
  for (const Host& host : hosts_) base = std::max(base, host.endpoint.next_chunk());
  for (Host& host : hosts_) host.endpoint.restart(base, network_.now());
}

void SimulatedRack::send(std::vector<std::byte> packet, std::function<void(std::vector<std::byte>)> arrive) {
  if (chance(options_.loss)) return;
  for (int copy = chance(options_.duplicate) ? 2 : 1; copy > 0; --copy) {
    const auto delay = static_cast<Duration>(random_() % kMostDelay);
    network_.after(delay, [packet, arrive] { arrive(packet); });
  }
}

void SimulatedRack::at_switch(const std::vector<std::byte>& packet) {
  const Header header = decode(packet.data());
  const Bytes lanes = Bytes(packet).subspan(kHeaderBytes);
  if (header.kind == static_cast<std::uint8_t>(Kind::kProbe)) return answer({}, header, header.child);
  Slot& slot = slots_[header.slot];
  const std::uint32_t tag = header.round + 1, bit = 1u << header.child;
  const auto age = static_cast<std::int32_t>(tag - slot.tag);
  if (age < 0) return;
  const bool again = age == 0 && (slot.seen & bit) != 0;
  if (age > 0) slot = {.tag = tag, .seen = 0, .mark = header.mark};
  if (!again) merge(slot, header, lanes);
  slot.seen |= bit;
  if (slot.seen != (1u << options_.ranks) - 1) return;
  for (int child = 0; child < options_.ranks; ++child)
    if (!again || child == header.child) answer(slot, header, static_cast<std::uint8_t>(child));
}

void SimulatedRack::merge(Slot& slot, const Header& header, Bytes lanes) const {
  slot.flags |= header.flags & (flag::kNonfinite | flag::kOverflow | flag::kMismatch | flag::kOwner);
  if (slot.mark != header.mark) slot.flags |= flag::kMismatch;
  if ((header.flags & flag::kOwner) != 0) slot.owner = header.child;
  if (lanes.empty()) return;
  if (slot.lanes.empty()) {
    slot.lanes.assign(lanes.begin(), lanes.end());
  } else if (header.op == static_cast<std::uint8_t>(WireOp::kSum)) {
    merge_sum(lanes.data(), options_.lanes, slot.lanes.data());
  } else {
    merge_max(lanes.data(), options_.lanes, slot.lanes.data());
  }
}

void SimulatedRack::answer(const Slot& slot, Header header, std::uint8_t child) {
  const bool probe = header.kind == static_cast<std::uint8_t>(Kind::kProbe);
  header.child = child;
  if (!probe) {
    header.kind = static_cast<std::uint8_t>(Kind::kResult);
    header.flags = slot.flags;
    header.mark = slot.mark;
  }
  std::vector<std::byte> packet(kHeaderBytes);
  encode(header, packet.data());
  const bool elsewhere = (slot.flags & flag::kOwner) != 0 && slot.owner != child;
  if (!elsewhere) packet.insert(packet.end(), slot.lanes.begin(), slot.lanes.end());
  send(std::move(packet), [this, child](const std::vector<std::byte>& arrived) {
    hosts_[child].endpoint.receive(arrived, network_.now());
    pump(child);
  });
}

void SimulatedRack::pump(int place) {
  Host& host = hosts_[static_cast<std::size_t>(place)];
  while (const auto event = host.endpoint.poll()) {
    if (std::holds_alternative<SliceDone>(*event)) done_(place);
    if (const auto* failure = std::get_if<Failure>(&*event)) return failure_(place, *failure);
  }
  for (Bytes packet = host.endpoint.transmit(network_.now()); !packet.empty();
       packet = host.endpoint.transmit(network_.now()))
    send({packet.begin(), packet.end()},
         [this](const std::vector<std::byte>& arrived) { at_switch(arrived); });
  const Time deadline = host.endpoint.deadline();
  if (deadline == kNever || deadline >= host.timer) return;
  host.timer = deadline;
  network_.after(std::max<Duration>(0, deadline - network_.now()), [this, place] {
    Host& due = hosts_[static_cast<std::size_t>(place)];
    due.timer = kNever;
    if (due.endpoint.deadline() <= network_.now()) due.endpoint.expire(network_.now());
    pump(place);
  });
}

}  // namespace railweave::ina
