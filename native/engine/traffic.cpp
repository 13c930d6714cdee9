// SPDX-License-Identifier: Apache-2.0
// What simple_switch does around the pipelines: resubmission, cloning, multicast, recirculation, learning.
// Its queues become one: copies leave in the order in which BMv2 would have put them into the egress queue.
#include <algorithm>
#include <cstring>

#include "engine/calculation.hpp"
#include "engine/engine.hpp"
#include "engine/headers.hpp"
#include "engine/interpreter.hpp"
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

void copy_bits(const std::vector<std::byte>& from, std::vector<std::byte>& to, const BitRange& range) {
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

void Engine::set(Pass& pass, Intrinsic field, std::uint64_t value) const {
  const NativeField& at = plan_.intrinsics[static_cast<std::size_t>(field)];
  if (at.width == 0) return;
  value &= ~0ull >> (64 - at.width);
  std::memcpy(&pass.phv[at.offset], &value, at.width <= 32 ? 4 : 8);
}

std::uint64_t Engine::get(const Pass& pass, Intrinsic field) const {
  const NativeField& at = plan_.intrinsics[static_cast<std::size_t>(field)];
  std::uint64_t value = 0;
  if (at.width) std::memcpy(&value, &pass.phv[at.offset], at.width <= 32 ? 4 : 8);
  return value;
}

void Engine::drop(Reason reason) {
  ++statistics_.dropped;
  trace(TraceKind::kDropped, static_cast<std::uint64_t>(reason));
}

void Engine::abort(Reason reason) {
  ++statistics_.aborted;
  trace(TraceKind::kAborted, static_cast<std::uint64_t>(reason));
}

bool Engine::spend_pass() {
  if (passes_left_ > 0) {
    --passes_left_;
    return true;
  }
  abort(Reason::kPasses);
  return false;
}

bool Engine::spend_round() {
  if (rounds_left_ > 0) {
    --rounds_left_;
    return true;
  }
  abort(Reason::kRounds);
  return false;
}

std::unique_ptr<Pass> Engine::take_pass() {
  if (free_passes_.empty()) {
    auto pass = std::make_unique<Pass>();
    pass->phv.resize(plan_.phv_bytes);
    return pass;
  }
  auto pass = std::move(free_passes_.back());
  free_passes_.pop_back();
  return pass;
}

void Engine::start(Pass& pass) const {
  std::fill(pass.phv.begin(), pass.phv.end(), std::byte{0});
  pass.cursor = 0;
  pass.error = plan_.errors[static_cast<std::size_t>(CoreError::kNoError)];
  pass.exited = false;
  pass.truncate = SIZE_MAX;
  pass.forget_requests();
}

/// What survives of the metadata when a packet is cloned, resubmitted or recirculated. A list may name
/// fields of headers, too: their bits are kept, their validity is not.
void Engine::keep_fields(const Pass& from, Pass& to, std::uint64_t list, std::uint64_t instance_type) const {
  std::fill_n(to.phv.begin(), plan_.metadata_bytes, std::byte{0});
  if (list < plan_.field_lists.size()) {
    for (const BitRange& range : plan_.field_lists[list]) copy_bits(from.phv, to.phv, range);
  }
  set(to, Intrinsic::kInstanceType, instance_type);
}

void Engine::process(std::uint16_t port, Bytes packet, std::uint64_t now_us, OutputSink& sink) {
  ++statistics_.received;
  if (tracer_ && !tracer_->begin(port)) [[unlikely]]
    end_trace();
  trace(TraceKind::kReceived, port, {packet.size()});
  if (packet.size() > kMaxPacketBytes) return abort(Reason::kTooLong);
  now_us_ = now_us;
  passes_left_ = kMaxPasses;
  rounds_left_ = kMaxRounds;
  Pass& pass = *arrival_;
  start(pass);
  pass.packet = packet;
  pass.length = pass.ingress_length = packet.size();
  pass.ingress_port = port;
  set(pass, Intrinsic::kIngressPort, port);
  set(pass, Intrinsic::kPacketLength, packet.size());
  set(pass, Intrinsic::kIngressTimestamp, now_us);
  ingress(pass, sink);
  if (!departures_.empty()) drain(sink);

  while (recirculated_first_ != recirculated_end_) {
    // Moved out, as recirculate() may move the slots: what is parsed stays where it is.
    const std::size_t at = recirculated_first_++;
    Recirculated next = std::move(recirculated_[at]);
    recirculated_bytes_ -= next.packet.size() + plan_.phv_bytes;
    next.pass->packet = next.packet;
    ingress(*next.pass, sink);
    drain(sink);
    give_pass(std::move(next.pass));
    recirculated_[at].packet = std::move(next.packet);  // its memory serves the next
  }
  recirculated_first_ = recirculated_end_ = 0;
}

void Engine::ingress(Pass& pass, OutputSink& sink) {
  for (;;) {
    if (!spend_pass()) return;
    const std::uint64_t received_length = pass.length;
    if (!Interpreter::run(*this, pass, plan_.parser)) return abort(Reason::kSteps);
    trace(TraceKind::kParsed, pass.error, {pass.cursor});
    set(pass, Intrinsic::kParserError, pass.error);
    if (!Interpreter::run(*this, pass, plan_.ingress)) return abort(Reason::kSteps);
    pass.exited = false;
    if (pass.clone_session) clone_ingress(pass);
    if (pass.learn_list) learn(pass, sink);
    if (pass.resubmit_fields == 0) break;
    if (!resubmit(pass, received_length)) return;
  }

  // A request to recirculate stays with a packet that goes on as it is; copies lose it.
  pass.clone_session = pass.clone_fields = pass.learn_list = 0;
  const std::uint64_t group = get(pass, Intrinsic::kMulticastGroup);
  if (group != 0) {
    set(pass, Intrinsic::kInstanceType, kReplication);
    const auto found = groups_.find(static_cast<std::uint32_t>(group));
    trace(TraceKind::kMulticast, group, {found == groups_.end() ? 0 : found->second.size()});
    if (found == groups_.end()) return drop(Reason::kNoGroup);
    return replicate(pass, found->second, sink);
  }
  const std::uint64_t port = get(pass, Intrinsic::kEgressSpec);
  if (port == kDropPort) return drop(Reason::kIngressDrop);
  set(pass, Intrinsic::kInstanceType, kNormal);
  depart(pass, {}, static_cast<std::uint16_t>(port), sink);
}

/// Ingress anew with the packet as it came in and the fields of a list; false at the bound.
bool Engine::resubmit(Pass& pass, std::uint64_t received_length) {
  if (!spend_round()) return false;
  trace(TraceKind::kResubmit, pass.resubmit_fields);
  std::unique_ptr<Pass> before = take_pass();
  before->phv.swap(pass.phv);
  const std::uint64_t fields = pass.resubmit_fields;
  start(pass);
  keep_fields(*before, pass, fields, kResubmitted);
  pass.length = received_length;
  set(pass, Intrinsic::kPacketLength, received_length);
  give_pass(std::move(before));
  return true;
}

/// Multicast copies carry metadata and headers, but no request and no truncation.
void Engine::replicate(Pass& pass, std::span<const Replica> replicas, OutputSink& sink) {
  pass.forget_requests();
  pass.truncate = SIZE_MAX;
  depart(pass, replicas, 0, sink);
}

/// To egress: at once if nothing waits, else behind what waits.
void Engine::depart(Pass& pass, std::span<const Replica> replicas, std::uint16_t port, OutputSink& sink) {
  if (!departures_.empty()) return hold(pass, replicas, port);
  if (replicas.empty()) return egress(pass, port, sink);
  std::unique_ptr<Pass> copy = replicas.size() > 1 ? take_pass() : nullptr;
  for (std::size_t i = 0; i + 1 < replicas.size(); ++i) {
    *copy = pass;
    set(*copy, Intrinsic::kEgressRid, replicas[i].instance);
    egress(*copy, replicas[i].port, sink);
  }
  if (copy) give_pass(std::move(copy));
  set(pass, Intrinsic::kEgressRid, replicas.back().instance);  // the last needs no copy
  egress(pass, replicas.back().port, sink);
}

void Engine::hold(const Pass& pass, std::span<const Replica> replicas, std::uint16_t port) {
  if (departures_.size() - next_departure_ >= held_limit_) return abort(Reason::kHeld);
  Departure departure{take_pass(), replicas, port};
  *departure.pass = pass;
  departures_.push_back(std::move(departure));
}

/// What leaves may clone itself, which appends to the queue.
void Engine::drain(OutputSink& sink) {
  while (next_departure_ < departures_.size()) {
    Departure next = std::move(departures_[next_departure_++]);
    const std::size_t copies = std::max<std::size_t>(next.replicas.size(), 1);
    std::unique_ptr<Pass> copy = copies > 1 ? take_pass() : nullptr;
    for (std::size_t i = 0; i < copies; ++i) {
      Pass& pass = i + 1 < copies ? *copy : *next.pass;
      if (i + 1 < copies) pass = *next.pass;
      if (!next.replicas.empty()) set(pass, Intrinsic::kEgressRid, next.replicas[i].instance);
      egress(pass, next.replicas.empty() ? next.port : next.replicas[i].port, sink);
    }
    if (copy) give_pass(std::move(copy));
    give_pass(std::move(next.pass));
  }
  departures_.clear();
  next_departure_ = 0;
}

const Engine::CloneSession* Engine::session(const Pass& pass) const {
  const auto found = sessions_.find(static_cast<std::uint32_t>(pass.clone_session & ~kCloneRequested));
  return found == sessions_.end() ? nullptr : &found->second;
}

/// The packet as it came in, parsed anew, with the fields of a list as they are now.
void Engine::clone_ingress(const Pass& pass) {
  const CloneSession* to = session(pass);
  trace(TraceKind::kClone, pass.clone_session & ~kCloneRequested, {to ? to->replicas.size() : 0});
  if (to == nullptr || !spend_pass()) return;
  std::unique_ptr<Pass> copy = take_pass();
  start(*copy);
  copy->packet = pass.packet;
  copy->length = copy->ingress_length = pass.ingress_length;
  copy->ingress_port = pass.ingress_port;
  set(*copy, Intrinsic::kIngressPort, pass.ingress_port);
  if (Interpreter::run(*this, *copy, plan_.parser)) {
    keep_fields(pass, *copy, pass.clone_fields, kIngressClone);
    copy->forget_requests();
    copy->exited = false;
    if (to->packet_length) copy->truncate = to->packet_length;
    hold(*copy, to->replicas, 0);
  } else {
    abort(Reason::kSteps);
  }
  give_pass(std::move(copy));
}

/// The packet as egress leaves it, before it is deparsed.
void Engine::clone_egress(const Pass& pass) {
  const CloneSession* to = session(pass);
  trace(TraceKind::kClone, pass.clone_session & ~kCloneRequested, {to ? to->replicas.size() : 0});
  if (to == nullptr) return;
  std::unique_ptr<Pass> copy = take_pass();
  *copy = pass;
  keep_fields(pass, *copy, pass.clone_fields, kEgressClone);
  copy->forget_requests();
  copy->exited = false;
  copy->truncate = to->packet_length ? to->packet_length : SIZE_MAX;
  hold(*copy, to->replicas, 0);
  give_pass(std::move(copy));
}

void Engine::learn(const Pass& pass, OutputSink& sink) {
  if (pass.learn_list >= plan_.learn_lists.size()) return;
  trace(TraceKind::kDigest, pass.learn_list);
  gather(plan_, plan_.learn_lists[pass.learn_list], pass, input_);
  if (digests_.add(static_cast<std::uint32_t>(pass.learn_list), input_)) {
    sink.noticed();
  } else {
    ++statistics_.unnoticed;
  }
}

void Engine::egress(Pass& pass, std::uint16_t port, OutputSink& sink) {
  // A single queue per port, BMv2's default, has priority 0 only: packets of another are dropped.
  if (get(pass, Intrinsic::kPriority) != 0) return drop(Reason::kPriority);
  if (!spend_pass()) return;
  trace(TraceKind::kEgress, port, {get(pass, Intrinsic::kInstanceType), get(pass, Intrinsic::kEgressRid)});
  set(pass, Intrinsic::kEgressTimestamp, now_us_);
  set(pass, Intrinsic::kEnqueueTimestamp, now_us_);
  set(pass, Intrinsic::kEnqueueDepth, 0);
  set(pass, Intrinsic::kDequeueTimedelta, 0);
  set(pass, Intrinsic::kDequeueDepth, 0);
  set(pass, Intrinsic::kEgressPort, port);
  set(pass, Intrinsic::kEgressSpec, kDropPort + 1);  // in 9 bits: 0, which is not "drop"
  set(pass, Intrinsic::kPacketLength, pass.length);
  if (!Interpreter::run(*this, pass, plan_.egress)) return abort(Reason::kSteps);

  if (pass.clone_session) clone_egress(pass);  // leaves behind the original, as from BMv2's queue
  if (get(pass, Intrinsic::kEgressSpec) == kDropPort) return drop(Reason::kEgressDrop);
  if (!Interpreter::run(*this, pass, plan_.deparser)) return abort(Reason::kSteps);
  const Bytes packet = deparse(pass);
  if (pass.recirculate_fields) {
    recirculate(pass, packet);  // whole: truncation ends here
  } else {
    emit(port, packet.first(std::min(packet.size(), pass.truncate)), sink);
  }
}

void Engine::emit(std::uint16_t port, Bytes packet, OutputSink& sink) {
  ++statistics_.emitted;
  trace(TraceKind::kEmitted, port, {packet.size()});
  if (port != cpu_port_) return sink.emit(port, packet);
  if (packets_.add(0, packet)) {
    sink.noticed();
  } else {
    ++statistics_.unnoticed;
  }
}

Bytes Engine::deparse(const Pass& pass) {
  std::byte* to = output_.data();
  for (const auto index : plan_.order) {
    const HeaderPlan& header = plan_.headers[index];
    if (pass.phv[header.valid] == std::byte{0}) continue;
    if (header.variable != kNone) {
      to += emit_variable(plan_, pass, header, to);
      continue;
    }
    std::memcpy(to, &pass.phv[header.image], header.bytes);
    to += header.bytes;
  }
  const Bytes payload = pass.payload();
  if (!payload.empty()) std::memcpy(to, payload.data(), payload.size());
  return Bytes(output_).first(static_cast<std::size_t>(to - output_.data()) + payload.size());
}

void Engine::recirculate(const Pass& pass, Bytes packet) {
  const std::size_t bytes = packet.size() + plan_.phv_bytes;
  if (packet.size() > kMaxPacketBytes || recirculated_bytes_ + bytes > kMaxHeldBytes) {
    return abort(Reason::kHeld);
  }
  if (!spend_round()) return;
  trace(TraceKind::kRecirculate, pass.recirculate_fields, {packet.size()});
  if (recirculated_end_ == recirculated_.size()) recirculated_.emplace_back();
  Recirculated& slot = recirculated_[recirculated_end_++];
  recirculated_bytes_ += bytes;
  slot.pass = take_pass();
  Pass& again = *slot.pass;
  start(again);
  keep_fields(pass, again, pass.recirculate_fields, kRecirculated);
  set(again, Intrinsic::kPacketLength, packet.size());
  again.length = again.ingress_length = packet.size();
  again.ingress_port = pass.ingress_port;
  slot.packet.assign(packet.begin(), packet.end());
}

}  // namespace railweave::engine
