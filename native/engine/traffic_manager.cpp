// SPDX-License-Identifier: Apache-2.0
#include "engine/traffic_manager.hpp"

#include <algorithm>
#include <cstring>
#include <utility>

#include "engine/wide.hpp"

namespace railweave::engine {
namespace {

// standard_metadata.instance_type, as BMv2's simple_switch numbers it.
enum InstanceType : std::uint64_t {
  kNormal = 0,
  kIngressClone = 1,
  kEgressClone = 2,
  kRecirculated = 4,
  kReplication = 5,
  kResubmitted = 6,
};

void copy_bits(const LineAligned<std::byte>& from, LineAligned<std::byte>& to, const BitRange& range) {
  if (range.position % 8 == 0 && range.bits % 8 == 0) {
    std::memcpy(&to[range.position / 8], &from[range.position / 8], range.bits / 8);
    return;
  }
  for (std::uint64_t done = 0; done < range.bits;) {
    const std::uint64_t step = std::min<std::uint64_t>(range.bits - done, 64);
    std::uint64_t piece;
    const std::uint64_t at = std::uint64_t{range.position} + done;
    wide::load_bits(&piece, 1, reinterpret_cast<const unsigned char*>(from.data()), at, step);
    wide::store_bits(&piece, 1, reinterpret_cast<unsigned char*>(to.data()), at, step);
    done += step;
  }
}

}  // namespace

TrafficManager::TrafficManager(State& state, std::size_t phv_bytes)
    : state_(state),
      phv_bytes_(phv_bytes),
      held_limit_(std::clamp(kMaxHeldBytes / std::max<std::size_t>(phv_bytes, 1), kMinHeld, kMaxHeld)),
      arrival_(take_packet()) {}

void TrafficManager::set(Packet& packet, Intrinsic field, std::uint64_t value) const {
  store_native(packet.phv.data(), machine_->plan().intrinsics[static_cast<std::size_t>(field)], value);
}

std::uint64_t TrafficManager::get(const Packet& packet, Intrinsic field) const {
  const NativeField& at = machine_->plan().intrinsics[static_cast<std::size_t>(field)];
  if (at.width == 0) return 0;
  return at.width <= 32 ? load_le<std::uint32_t>(&packet.phv[at.offset])
                        : load_le<std::uint64_t>(&packet.phv[at.offset]);
}

void TrafficManager::drop(Reason reason) {
  ++state_.statistics.dropped;
  machine_->trace(TraceKind::kDropped, static_cast<std::uint64_t>(reason));
}

void TrafficManager::abort(Reason reason) {
  ++state_.statistics.aborted;
  machine_->trace(TraceKind::kAborted, static_cast<std::uint64_t>(reason));
}

bool TrafficManager::spend_pass() {
  if (passes_left_-- > 0) return true;
  abort(Reason::kPasses);
  return false;
}

bool TrafficManager::spend_round() {
  if (rounds_left_-- > 0) return true;
  abort(Reason::kRounds);
  return false;
}

std::unique_ptr<Packet> TrafficManager::take_packet() {
  if (free_.empty()) {
    auto packet = std::make_unique<Packet>();
    packet->phv.resize(phv_bytes_);
    return packet;
  }
  auto packet = std::move(free_.back());
  free_.pop_back();
  return packet;
}

void TrafficManager::start(Packet& packet) const {
  packet.body = machine_->zeros();
  std::memset(packet.phv.data(), 0, packet.body ? machine_->plan().large_at : packet.phv.size());
  packet.cursor = 0;
  packet.error = machine_->plan().errors[static_cast<std::size_t>(CoreError::kNoError)];
  packet.exited = false;
  packet.truncate = SIZE_MAX;
  packet.forget_requests();
}

/// `to` may refer to `from` as long as it lives and is not written.
void TrafficManager::copy(const Packet& from, Packet& to) const {
  const Plan& plan = machine_->plan();
  const bool large = plan.large != kNone;
  std::memcpy(to.phv.data(), from.phv.data(), large ? plan.large_at : from.phv.size());
  static_cast<PacketState&>(to) = from;
  if (large && to.body == nullptr) to.body = &from.phv[plan.large_at];
}

void TrafficManager::copy_whole(const Packet& from, Packet& to) const {
  copy(from, to);
  if (to.body == nullptr) return;
  const Plan& plan = machine_->plan();
  std::memcpy(&to.phv[plan.large_at], to.body, plan.headers[plan.large].bytes);
  to.body = nullptr;
}

/// Clears the metadata of a packet that is cloned, resubmitted or recirculated, except the fields of a list.
/// A list may also name header fields: their bits are kept, their validity is not.
void TrafficManager::keep_fields(const Packet& from, Packet& to, std::uint64_t list,
                                 std::uint64_t instance_type) const {
  const Plan& plan = machine_->plan();
  std::fill_n(to.phv.begin(), plan.metadata_bytes, std::byte{0});
  if (list < plan.field_lists.size()) {
    for (const BitRange& range : plan.field_lists[list]) copy_bits(from.phv, to.phv, range);
  }
  set(to, Intrinsic::kInstanceType, instance_type);
}

void TrafficManager::process(Machine& machine, std::uint16_t port, Bytes bytes, OutputSink& sink) {
  machine_ = &machine;
  sink_ = &sink;
  ++state_.statistics.received;
  machine.trace(TraceKind::kReceived, port, {bytes.size()});
  if (bytes.size() > kMaxPacketBytes) return abort(Reason::kTooLong);
  passes_left_ = kMaxPasses;
  rounds_left_ = kMaxRounds;
  Packet& packet = *arrival_;
  start(packet);
  packet.bytes = bytes;
  packet.length = packet.ingress_length = bytes.size();
  packet.ingress_port = port;
  set(packet, Intrinsic::kIngressPort, port);
  set(packet, Intrinsic::kPacketLength, bytes.size());
  set(packet, Intrinsic::kIngressTimestamp, state_.now_us - state_.start_us);
  ingress(packet);
  finish();
}

/// Runs the copies that a packet has left behind, and the packets that recirculate.
void TrafficManager::finish() {
  if (!departures_.empty()) drain();
  while (recirculated_first_ != recirculated_end_) {
    // Moved out: recirculate() may move the slots, and the bytes of this packet must stay in place.
    const std::size_t at = recirculated_first_++;
    Recirculated next = std::move(recirculated_[at]);
    recirculated_bytes_ -= next.bytes.size() + phv_bytes_;
    next.packet->bytes = next.bytes;
    ingress(*next.packet);
    drain();
    give_packet(std::move(next.packet));
    recirculated_[at].bytes = std::move(next.bytes);  // its memory serves the next
  }
  recirculated_first_ = recirculated_end_ = 0;
}

void TrafficManager::ingress(Packet& packet) {
  for (;;) {
    if (!spend_pass()) return;
    const std::uint64_t received_length = packet.length;
    if (!machine_->run(packet, Stage::kParser)) return abort(Reason::kSteps);
    machine_->trace(TraceKind::kParsed, packet.error, {packet.cursor});
    set(packet, Intrinsic::kParserError, packet.error);
    if (!machine_->run(packet, Stage::kIngress)) return abort(Reason::kSteps);
    packet.exited = false;
    if (packet.clone_session) clone_ingress(packet);
    if (packet.learn_list) learn(packet);
    if (packet.resubmit_fields == 0) break;
    if (!resubmit(packet, received_length)) return;
  }

  // A request to recirculate stays with a packet that goes on as it is; copies lose it.
  packet.clone_session = packet.clone_fields = packet.learn_list = 0;
  const std::uint64_t group = get(packet, Intrinsic::kMulticastGroup);
  if (group != 0) return multicast(packet, group);
  const std::uint64_t port = get(packet, Intrinsic::kEgressSpec);
  if (port == kDropPort) return drop(Reason::kIngressDrop);
  set(packet, Intrinsic::kInstanceType, kNormal);
  depart(packet, {}, static_cast<std::uint16_t>(port));
}

/// Prepares the packet for another ingress: as it came in, with the fields of a list; false at the bound.
bool TrafficManager::resubmit(Packet& packet, std::uint64_t received_length) {
  if (!spend_round()) return false;
  machine_->trace(TraceKind::kResubmit, packet.resubmit_fields);
  std::unique_ptr<Packet> before = take_packet();
  before->phv.swap(packet.phv);
  const std::uint64_t fields = packet.resubmit_fields;
  start(packet);
  keep_fields(*before, packet, fields, kResubmitted);
  packet.length = received_length;
  set(packet, Intrinsic::kPacketLength, received_length);
  give_packet(std::move(before));
  return true;
}

/// Copies carry metadata and headers, but no request and no truncation.
void TrafficManager::multicast(Packet& packet, std::uint64_t group) {
  set(packet, Intrinsic::kInstanceType, kReplication);
  const Replicas* replicas = state_.replication.group(group);
  machine_->trace(TraceKind::kMulticast, group, {replicas ? replicas->size() : 0});
  if (replicas == nullptr) return drop(Reason::kNoGroup);
  packet.forget_requests();
  packet.truncate = SIZE_MAX;
  depart(packet, *replicas, 0);
}

/// Sends the packet to egress: at once, or behind the packets that wait.
void TrafficManager::depart(Packet& packet, std::span<const Replica> replicas, std::uint16_t port) {
  if (departures_.empty()) {
    send_copies(packet, replicas, port);
  } else {
    hold(packet, replicas, port);
  }
}

void TrafficManager::send_copies(Packet& packet, std::span<const Replica> replicas, std::uint16_t port) {
  if (replicas.empty()) return egress(packet, port);
  std::unique_ptr<Packet> copy = replicas.size() > 1 ? take_packet() : nullptr;
  for (std::size_t i = 0; i + 1 < replicas.size(); ++i) {
    this->copy(packet, *copy);
    set(*copy, Intrinsic::kEgressRid, replicas[i].instance);
    egress(*copy, replicas[i].port);
  }
  if (copy) give_packet(std::move(copy));
  set(packet, Intrinsic::kEgressRid, replicas.back().instance);  // the last needs no copy
  egress(packet, replicas.back().port);
}

void TrafficManager::hold(const Packet& packet, std::span<const Replica> replicas, std::uint16_t port) {
  if (departures_.size() - next_departure_ >= held_limit_) return abort(Reason::kHeld);
  Departure departure{take_packet(), replicas, port};
  copy_whole(packet, *departure.packet);
  departures_.push_back(std::move(departure));
}

/// Sends all waiting packets. A packet that leaves may clone itself, which appends to the queue.
void TrafficManager::drain() {
  while (next_departure_ < departures_.size()) {
    Departure next = std::move(departures_[next_departure_++]);
    send_copies(*next.packet, next.replicas, next.port);
    give_packet(std::move(next.packet));
  }
  departures_.clear();
  next_departure_ = 0;
}

const CloneSession* TrafficManager::session(const Packet& packet) {
  const std::uint64_t number = packet.clone_session & ~kCloneRequested;
  const CloneSession* to = state_.replication.session(number);
  machine_->trace(TraceKind::kClone, number, {to ? to->replicas.size() : 0});
  return to;
}

/// Clones the packet as it came in and parses it again. The fields of a list keep their present values.
void TrafficManager::clone_ingress(const Packet& packet) {
  const CloneSession* to = session(packet);
  if (to == nullptr || !spend_pass()) return;
  std::unique_ptr<Packet> copy = take_packet();
  start(*copy);
  copy->bytes = packet.bytes;
  copy->length = copy->ingress_length = packet.ingress_length;
  copy->ingress_port = packet.ingress_port;
  set(*copy, Intrinsic::kIngressPort, packet.ingress_port);
  if (machine_->run(*copy, Stage::kParser)) {
    keep_fields(packet, *copy, packet.clone_fields, kIngressClone);
    copy->forget_requests();
    copy->exited = false;
    if (to->packet_length) copy->truncate = to->packet_length;
    hold(*copy, to->replicas, 0);
  } else {
    abort(Reason::kSteps);
  }
  give_packet(std::move(copy));
}

/// The packet as egress leaves it, before it is deparsed.
void TrafficManager::clone_egress(const Packet& packet) {
  const CloneSession* to = session(packet);
  if (to == nullptr) return;
  std::unique_ptr<Packet> copy = take_packet();
  this->copy(packet, *copy);
  keep_fields(packet, *copy, packet.clone_fields, kEgressClone);
  copy->forget_requests();
  copy->exited = false;
  copy->truncate = to->packet_length ? to->packet_length : SIZE_MAX;
  hold(*copy, to->replicas, 0);
  give_packet(std::move(copy));
}

void TrafficManager::notify(Notices& notices, std::uint32_t list, Bytes bytes) {
  if (notices.add(list, bytes)) {
    sink_->noticed();
  } else {
    ++state_.statistics.unnoticed;
  }
}

void TrafficManager::learn(const Packet& packet) {
  if (packet.learn_list >= machine_->plan().learn_lists.size()) return;
  machine_->trace(TraceKind::kDigest, packet.learn_list);
  notify(state_.digests, static_cast<std::uint32_t>(packet.learn_list),
         machine_->sample(packet, packet.learn_list));
}

std::size_t TrafficManager::queued(std::uint16_t port, std::size_t priority) const {
  const auto queue = queues_.find({port, priority});
  return queue == queues_.end() ? 0 : queue->second.size();
}

/// The packets of a priority that wait for a port, in the engine and behind it.
OutputBacklog TrafficManager::backlog(std::uint16_t port, std::size_t priority) const {
  OutputBacklog backlog = sink_->backlog(port, priority);
  backlog.packets += static_cast<std::uint32_t>(queued(port, priority));
  return backlog;
}

void TrafficManager::enqueue(const Packet& packet, std::uint16_t port, std::size_t priority) {
  const std::size_t bytes = packet.bytes.size() + phv_bytes_;
  const std::size_t before = queued(port, priority);
  if (before >= kQueuePackets || queued_bytes_ + bytes > kMaxHeldBytes) {
    machine_->trace(TraceKind::kDropped, static_cast<std::uint64_t>(Reason::kQueueFull));
    return sink_->overflowed(port);
  }
  machine_->trace(TraceKind::kQueued, port, {before});
  Queued last{
      take_packet(), {packet.bytes.begin(), packet.bytes.end()}, state_.now_us, passes_left_, rounds_left_};
  copy_whole(packet, *last.packet);
  last.packet->bytes = last.bytes;
  queues_[{port, priority}].push_back(std::move(last));
  queued_bytes_ += bytes;
}

/// Runs egress and deparser. `since_us`: when the packet entered its queue. `backlog`: the packets behind it
/// in the engine, and those before it behind the engine, whose time is a forecast. It is inlined because a
/// call costs 2 ns per packet.
[[gnu::always_inline]] inline void TrafficManager::leave(Packet& packet, std::uint16_t port,
                                                         std::size_t priority, std::uint64_t since_us,
                                                         const OutputBacklog& backlog) {
  if (!spend_pass()) return;
  const std::uint64_t leaves_us = state_.now_us + backlog.wait_us;
  set(packet, Intrinsic::kDequeueTimedelta, leaves_us - since_us);
  set(packet, Intrinsic::kDequeueDepth, backlog.packets);
  set(packet, Intrinsic::kEgressTimestamp, leaves_us - state_.start_us);
  if (machine_->traced()) [[unlikely]] {
    machine_->trace(TraceKind::kEgress, port,
                    {get(packet, Intrinsic::kInstanceType), get(packet, Intrinsic::kEgressRid)});
  }
  set(packet, Intrinsic::kEgressPort, port);
  set(packet, Intrinsic::kEgressSpec, kDropPort + 1);  // in 9 bits: 0, which is not "drop"
  set(packet, Intrinsic::kPacketLength, packet.length);
  if (!machine_->run(packet, Stage::kEgress)) return abort(Reason::kSteps);

  if (packet.clone_session) clone_egress(packet);  // leaves behind the original, as from BMv2's queue
  if (get(packet, Intrinsic::kEgressSpec) == kDropPort) return drop(Reason::kEgressDrop);
  if (!machine_->run(packet, Stage::kDeparser)) return abort(Reason::kSteps);
  Pieces pieces = machine_->deparse(packet);
  if (packet.recirculate_fields) return recirculate(packet, pieces);  // whole: truncation ends here
  pieces.cut(packet.truncate);
  pieces.priority = priority;
  emit(port, pieces);
}

/// Has the packet pass egress at once, or wait for its port.
void TrafficManager::egress(Packet& packet, std::uint16_t port) {
  // As in BMv2, a packet of a priority without queue is dropped. By default there is only queue 0.
  const std::size_t priority = get(packet, Intrinsic::kPriority);
  if (priority >= state_.priority_queues) return drop(Reason::kPriority);
  OutputBacklog before;
  if (machine_->plan().uses_backlog()) before = backlog(port, priority);
  set(packet, Intrinsic::kEnqueueTimestamp, state_.now_us - state_.start_us);
  set(packet, Intrinsic::kEnqueueDepth, before.packets);
  set(packet, Intrinsic::kQueueId, priority);
  if (state_.egress_queues && !sink_->ready(port)) return enqueue(packet, port, priority);
  leave(packet, port, priority, state_.now_us, before);
}

bool TrafficManager::release(Machine& machine, std::uint16_t port, OutputSink& sink) {
  auto queue = queues_.upper_bound({port, SIZE_MAX});
  if (queue == queues_.begin() || (--queue)->first.first != port) return false;
  const std::size_t priority = queue->first.second;
  Queued next = std::move(queue->second.front());
  queue->second.pop_front();
  if (queue->second.empty()) queues_.erase(queue);
  queued_bytes_ -= next.bytes.size() + phv_bytes_;
  machine_ = &machine;
  sink_ = &sink;
  passes_left_ = next.passes_left;
  rounds_left_ = next.rounds_left;
  leave(*next.packet, port, priority, next.since_us, backlog(port, priority));
  finish();
  give_packet(std::move(next.packet));
  return true;
}

void TrafficManager::emit(std::uint16_t port, const Pieces& packet) {
  ++state_.statistics.emitted;
  machine_->trace(TraceKind::kEmitted, port, {packet.size()});
  if (port == state_.cpu_port) {
    notify(state_.packets, 0, packet.whole(whole_));
  } else {
    sink_->emit(port, packet);
  }
}

void TrafficManager::recirculate(const Packet& packet, const Pieces& bytes) {
  const std::size_t held = bytes.size() + phv_bytes_;
  if (bytes.size() > kMaxPacketBytes || recirculated_bytes_ + held > kMaxHeldBytes) {
    return abort(Reason::kHeld);
  }
  if (!spend_round()) return;
  machine_->trace(TraceKind::kRecirculate, packet.recirculate_fields, {bytes.size()});
  if (recirculated_end_ == recirculated_.size()) recirculated_.emplace_back();
  Recirculated& slot = recirculated_[recirculated_end_++];
  recirculated_bytes_ += held;
  slot.packet = take_packet();
  Packet& again = *slot.packet;
  start(again);
  keep_fields(packet, again, packet.recirculate_fields, kRecirculated);
  set(again, Intrinsic::kPacketLength, bytes.size());
  again.length = again.ingress_length = bytes.size();
  again.ingress_port = packet.ingress_port;
  slot.bytes.resize(bytes.size());
  bytes.write(slot.bytes.data());
}

}  // namespace railweave::engine
