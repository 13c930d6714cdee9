// SPDX-License-Identifier: Apache-2.0
#include "engine/engine.hpp"

#include <algorithm>
#include <cstring>
#include <utility>

#include "engine/headers.hpp"
#include "engine/interpreter.hpp"
#include "engine/pass.hpp"

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

constexpr std::size_t kMaxRecirculating = 1024;

}  // namespace

Engine::Engine(Bytes plan) : plan_(Plan::parse(plan)) {
  registers_.assign(plan_.registers, 0);
  std::copy(plan_.constants.begin(), plan_.constants.end(), registers_.begin());
  wides_.assign(std::size_t{plan_.wides} * plan_.limbs, 0);
  vectors_.assign(std::size_t{plan_.vectors} * plan_.lanes, 0);
  key_.assign(plan_.key_words + plan_.limbs, 0);
  std::size_t most = kMaxPacketBytes;
  for (const auto header : plan_.order) {
    const auto variable = plan_.headers[header].variable;
    most += plan_.headers[header].bytes + (variable == kNone ? 0 : plan_.variables[variable].bytes);
  }
  output_.resize(most);
  for (const auto& bank : plan_.banks) banks_.emplace_back(std::size_t{bank.rows} * bank.words);
  for (const auto size : plan_.counters) counters_.emplace_back(size);
  for (const auto& meter : plan_.meters) meters_.emplace_back(meter.size);
  for (const auto& table : plan_.tables) {
    tables_.push_back(std::make_unique<Table>(table, plan_.parameter_words));
  }
}

Engine::~Engine() = default;

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

bool Engine::spend_pass() {
  if (passes_left_ > 0) {
    --passes_left_;
    return true;
  }
  ++statistics_.aborted;
  return false;
}

Pass& Engine::take_pass() {
  if (passes_in_use_ == passes_.size()) {
    passes_.push_back(std::make_unique<Pass>());
    passes_.back()->phv.resize(plan_.phv_bytes);
  }
  return *passes_[passes_in_use_++];
}

void Engine::start(Pass& pass) const {
  std::fill(pass.phv.begin(), pass.phv.end(), std::byte{0});
  pass.cursor = 0;
  pass.error = plan_.errors[static_cast<std::size_t>(CoreError::kNoError)];
  pass.exited = false;
  pass.truncate = SIZE_MAX;
  pass.forget_requests();
}

/// What survives of the metadata when a packet is cloned, resubmitted or recirculated.
void Engine::keep_fields(const Pass& from, Pass& to, std::uint64_t list, std::uint64_t instance_type) const {
  std::fill_n(to.phv.begin(), plan_.metadata_bytes, std::byte{0});
  if (list < plan_.field_lists.size()) {
    for (const ByteRange& range : plan_.field_lists[list]) {
      std::memcpy(&to.phv[range.offset], &from.phv[range.offset], range.bytes);
    }
  }
  set(to, Intrinsic::kInstanceType, instance_type);
}

void Engine::process(std::uint16_t port, Bytes packet, std::uint64_t now_us, OutputSink& sink) {
  ++statistics_.received;
  if (packet.size() > kMaxPacketBytes) {
    ++statistics_.aborted;
    return;
  }
  now_us_ = now_us;
  passes_left_ = kMaxPasses;
  Pass& pass = take_pass();
  start(pass);
  pass.packet = packet;
  pass.length = pass.ingress_length = packet.size();
  pass.ingress_port = port;
  set(pass, Intrinsic::kIngressPort, port);
  set(pass, Intrinsic::kPacketLength, packet.size());
  set(pass, Intrinsic::kIngressTimestamp, now_us);
  ingress(pass, sink);

  while (recirculated_first_ != recirculated_end_) {
    // A buffer stays in place while it is processed: recirculate() only appends behind it.
    const std::size_t at = recirculated_first_++;
    std::vector<std::byte> bytes = std::move(recirculated_[at].packet);
    start(pass);
    std::copy(recirculated_[at].metadata.begin(), recirculated_[at].metadata.end(), pass.phv.begin());
    pass.packet = bytes;
    pass.length = pass.ingress_length = bytes.size();
    ingress(pass, sink);
    recirculated_[at].packet = std::move(bytes);
  }
  recirculated_first_ = recirculated_end_ = 0;
  give_pass();
}

void Engine::ingress(Pass& pass, OutputSink& sink) {
  for (;;) {
    if (!spend_pass()) return;
    const std::uint64_t received_length = pass.length;
    if (!Interpreter::run(*this, pass, plan_.parser)) return void(++statistics_.aborted);
    set(pass, Intrinsic::kParserError, pass.error);
    if (!Interpreter::run(*this, pass, plan_.ingress)) return void(++statistics_.aborted);
    pass.exited = false;
    if (pass.clone_session & kCloneRequested) clone_ingress(pass, sink);
    if (pass.resubmit_fields == 0) break;

    Pass& again = take_pass();
    again.phv.swap(pass.phv);  // `again` keeps the old metadata for the length of this block
    const std::uint64_t fields = pass.resubmit_fields;
    const auto port = pass.ingress_port;
    start(pass);
    keep_fields(again, pass, fields, kResubmitted);
    pass.ingress_port = port;
    pass.length = received_length;
    set(pass, Intrinsic::kPacketLength, received_length);
    give_pass();
  }

  const std::uint64_t group = get(pass, Intrinsic::kMulticastGroup);
  if (group != 0) {
    set(pass, Intrinsic::kInstanceType, kReplication);
    const auto found = groups_.find(static_cast<std::uint32_t>(group));
    if (found == groups_.end()) return void(++statistics_.dropped);
    return replicate(pass, found->second, sink);
  }
  const std::uint64_t port = get(pass, Intrinsic::kEgressSpec);
  if (port == kDropPort) return void(++statistics_.dropped);
  set(pass, Intrinsic::kInstanceType, kNormal);
  pass.forget_requests();
  egress(pass, static_cast<std::uint16_t>(port), sink);
}

void Engine::replicate(Pass& pass, std::span<const Replica> replicas, OutputSink& sink) {
  pass.forget_requests();
  for (std::size_t i = 0; i < replicas.size(); ++i) {
    const Replica& replica = replicas[i];
    set(pass, Intrinsic::kEgressRid, replica.instance);
    if (i + 1 == replicas.size()) return egress(pass, replica.port, sink);  // the last needs no copy
    Pass& copy = take_pass();
    copy = pass;
    egress(copy, replica.port, sink);
    give_pass();
  }
}

void Engine::clone_ingress(const Pass& pass, OutputSink& sink) {
  const auto session = sessions_.find(static_cast<std::uint32_t>(pass.clone_session & ~kCloneRequested));
  if (session == sessions_.end() || !spend_pass()) return;
  Pass& copy = take_pass();
  start(copy);
  copy.packet = pass.packet;  // as it came in, parsed anew
  copy.length = copy.ingress_length = pass.ingress_length;
  copy.ingress_port = pass.ingress_port;
  set(copy, Intrinsic::kIngressPort, pass.ingress_port);
  if (Interpreter::run(*this, copy, plan_.parser)) {
    keep_fields(pass, copy, pass.clone_fields, kIngressClone);
    replicate(copy, session->second, sink);
  } else {
    ++statistics_.aborted;
  }
  give_pass();
}

void Engine::clone_egress(const Pass& pass, OutputSink& sink) {
  const auto session = sessions_.find(static_cast<std::uint32_t>(pass.clone_session & ~kCloneRequested));
  if (session == sessions_.end()) return;
  if (clone_depth_ == kMaxCloneDepth) return void(++statistics_.aborted);
  ++clone_depth_;
  Pass& copy = take_pass();
  copy = pass;
  keep_fields(pass, copy, pass.clone_fields, kEgressClone);
  copy.exited = false;
  replicate(copy, session->second, sink);
  give_pass();
  --clone_depth_;
}

void Engine::egress(Pass& pass, std::uint16_t port, OutputSink& sink) {
  if (!spend_pass()) return;
  set(pass, Intrinsic::kEgressTimestamp, now_us_);
  set(pass, Intrinsic::kEnqueueTimestamp, now_us_);
  set(pass, Intrinsic::kEnqueueDepth, 0);
  set(pass, Intrinsic::kDequeueTimedelta, 0);
  set(pass, Intrinsic::kDequeueDepth, 0);
  set(pass, Intrinsic::kEgressPort, port);
  set(pass, Intrinsic::kEgressSpec, kDropPort + 1);  // in 9 bits: 0, which is not "drop"
  set(pass, Intrinsic::kPacketLength, pass.length);
  if (!Interpreter::run(*this, pass, plan_.egress)) return void(++statistics_.aborted);

  Pass* clone = nullptr;  // leaves behind the original, as from BMv2's queue
  if (pass.clone_session & kCloneRequested) {
    clone = &take_pass();
    *clone = pass;
  }
  if (get(pass, Intrinsic::kEgressSpec) == kDropPort) {
    ++statistics_.dropped;
  } else if (!Interpreter::run(*this, pass, plan_.deparser)) {
    ++statistics_.aborted;
  } else {
    const Bytes packet = deparse(pass);
    if (pass.recirculate_fields) {
      recirculate(pass, packet);
    } else {
      ++statistics_.emitted;
      sink.emit(port, packet);
    }
  }
  if (clone) {
    clone_egress(*clone, sink);
    give_pass();
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
  const auto size = static_cast<std::size_t>(to - output_.data()) + payload.size();
  return Bytes(output_).first(std::min(size, pass.truncate));
}

void Engine::recirculate(const Pass& pass, Bytes packet) {
  if (recirculated_end_ == kMaxRecirculating || packet.size() > kMaxPacketBytes) {
    return void(++statistics_.aborted);
  }
  if (recirculated_end_ == recirculated_.size()) recirculated_.emplace_back();
  Pass& kept = take_pass();
  keep_fields(pass, kept, pass.recirculate_fields, kRecirculated);
  set(kept, Intrinsic::kPacketLength, packet.size());
  Recirculated& slot = recirculated_[recirculated_end_++];
  slot.metadata.assign(kept.phv.begin(), kept.phv.begin() + plan_.metadata_bytes);
  slot.packet.assign(packet.begin(), packet.end());
  give_pass();
}

std::uint64_t Engine::execute_meter(MeterCell& cell, const MeterPlan& plan, std::uint64_t bytes) const {
  if (!cell.configured) return 0;
  std::uint64_t color = 0;
  const std::uint64_t cost = plan.bytes ? bytes : 1;
  // Slowest rate last, as BMv2 holds them: the first bucket that is too empty gives the colour.
  for (std::size_t i = 0; i < cell.buckets.size(); ++i) {
    auto& bucket = cell.buckets[i];
    const auto total = static_cast<std::uint64_t>(static_cast<double>(now_us_) * bucket.rate.tokens_per_us);
    bucket.tokens = std::min(bucket.tokens + (total - std::min(total, bucket.last)), bucket.rate.burst);
    bucket.last = total;
    if (bucket.tokens < cost) {
      color = cell.buckets.size() - i;
      break;
    }
    bucket.tokens -= cost;
  }
  return color;
}

void Engine::configure(MeterCell& cell, const MeterPlan& plan, std::span<const MeterRate> rates) const {
  if (!rates.empty() && rates.size() != plan.rates) throw std::invalid_argument("meter: number of rates");
  cell.configured = !rates.empty();
  cell.buckets.clear();
  for (std::size_t i = rates.size(); i-- > 0;) {  // greatest rate first
    const auto last = static_cast<std::uint64_t>(static_cast<double>(now_us_) * rates[i].tokens_per_us);
    cell.buckets.push_back({rates[i], rates[i].burst, last});
  }
}

std::uint32_t* Engine::register_row(const RegisterPlan& array, std::uint64_t index) {
  return banks_[array.bank].data() + index * plan_.banks[array.bank].words + array.word;
}

std::uint64_t Engine::insert(std::uint32_t index, Match match, std::uint32_t action,
                             std::vector<std::uint64_t> parameters) {
  const auto guard = lock();
  Table& into = table(index);
  const std::uint64_t handle = into.insert(std::move(match), action, std::move(parameters));
  const auto meter = into.plan().meter;
  if (meter != kNone) meters_[meter].at(into.entry(handle).slot) = {};
  return handle;
}

void Engine::modify(std::uint32_t index, std::uint64_t handle, std::uint32_t action,
                    std::vector<std::uint64_t> parameters) {
  const auto guard = lock();
  table(index).modify(handle, action, std::move(parameters));
}

void Engine::remove(std::uint32_t index, std::uint64_t handle) {
  const auto guard = lock();
  table(index).remove(handle);
}

void Engine::set_default(std::uint32_t index, std::uint32_t action, std::vector<std::uint64_t> parameters) {
  const auto guard = lock();
  table(index).set_default(action, std::move(parameters));
}

CounterValue Engine::direct_counter(std::uint32_t index, std::uint64_t handle) {
  const auto guard = lock();
  return table(index).entry(handle).counter;
}

void Engine::set_direct_counter(std::uint32_t index, std::uint64_t handle, CounterValue value) {
  const auto guard = lock();
  table(index).entry(handle).counter = value;
}

void Engine::set_direct_meter(std::uint32_t index, std::uint64_t handle, std::span<const MeterRate> rates) {
  const auto guard = lock();
  Table& of = table(index);
  const auto meter = of.plan().meter;
  if (meter == kNone) throw std::invalid_argument("table: no direct meter");
  configure(meters_[meter].at(of.entry(handle).slot), plan_.meters[meter], rates);
}

CounterValue Engine::counter(std::uint32_t counter, std::uint64_t index) {
  const auto guard = lock();
  return counters_.at(counter).at(index);
}

void Engine::set_counter(std::uint32_t counter, std::uint64_t index, CounterValue value) {
  const auto guard = lock();
  counters_.at(counter).at(index) = value;
}

void Engine::set_meter(std::uint32_t meter, std::uint64_t index, std::span<const MeterRate> rates) {
  const auto guard = lock();
  configure(meters_.at(meter).at(index), plan_.meters.at(meter), rates);
}

std::vector<std::uint64_t> Engine::read_register(std::uint32_t array, std::uint64_t index) {
  const auto guard = lock();
  const RegisterPlan& plan = plan_.arrays.at(array);
  if (index >= plan.size) throw std::out_of_range("register: index");
  const std::uint32_t* cell = register_row(plan, index);
  std::vector<std::uint64_t> words((plan.width + 63) / 64);
  for (std::size_t i = 0; i < words.size(); ++i) {
    words[i] = plan.width <= 32 ? cell[0] : cell[2 * i] | std::uint64_t{cell[2 * i + 1]} << 32;
  }
  return words;
}

void Engine::write_register(std::uint32_t array, std::uint64_t index, std::span<const std::uint64_t> words) {
  const auto guard = lock();
  const RegisterPlan& plan = plan_.arrays.at(array);
  if (index >= plan.size) throw std::out_of_range("register: index");
  if (words.size() != (plan.width + 63) / 64) throw std::invalid_argument("register: width");
  std::uint32_t* cell = register_row(plan, index);
  for (std::size_t i = 0; i < words.size(); ++i) {
    const std::uint32_t kept = std::min<std::uint32_t>(plan.width - 64 * static_cast<std::uint32_t>(i), 64);
    const std::uint64_t value = words[i] & (~0ull >> (64 - kept));
    cell[2 * i] = static_cast<std::uint32_t>(value);
    if (plan.width > 32) cell[2 * i + 1] = static_cast<std::uint32_t>(value >> 32);
  }
}

void Engine::set_multicast(std::uint32_t group, std::vector<Replica> replicas) {
  const auto guard = lock();
  if (replicas.empty()) {
    groups_.erase(group);
  } else {
    groups_[group] = std::move(replicas);
  }
}

void Engine::set_clone_session(std::uint32_t session, std::vector<Replica> replicas) {
  const auto guard = lock();
  if (replicas.empty()) {
    sessions_.erase(session);
  } else {
    sessions_[session] = std::move(replicas);
  }
}

void Engine::seed(std::uint64_t seed) {
  const auto guard = lock();
  random_.seed(seed);
}

Statistics Engine::statistics() {
  const auto guard = lock();
  return statistics_;
}

void Engine::set_logging(bool on) {
  const auto guard = lock();
  logging_ = on;
}

void Engine::log(std::uint32_t message) {
  if (log_.size() < kMaxLogRecords) {
    log_.push_back({message, std::move(log_values_)});
  } else {
    ++log_lost_;
  }
  log_values_.clear();
}

std::pair<std::vector<LogRecord>, std::uint64_t> Engine::take_log() {
  const auto guard = lock();
  return {std::exchange(log_, {}), std::exchange(log_lost_, 0)};
}

}  // namespace railweave::engine
