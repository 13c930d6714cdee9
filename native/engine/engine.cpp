// SPDX-License-Identifier: Apache-2.0
#include "engine/engine.hpp"

#include <algorithm>
#include <utility>

#include "engine/calculation.hpp"
#include "engine/fuse.hpp"

namespace railweave::engine {

Engine::Engine(Bytes plan) : plan_(Plan::parse(plan)) {
  std::size_t most = kMaxPacketBytes;
  for (const auto header : plan_.order) {
    const auto variable = plan_.headers[header].variable;
    most += plan_.headers[header].bytes + (variable == kNone ? 0 : plan_.variables[variable].bytes);
  }
  output_.resize(most);
  for (const auto& bank : plan_.banks) banks_.emplace_back(std::size_t{bank.rows} * bank.words);
  for (const auto size : plan_.counters) counters_.emplace_back(size);
  for (const auto& meter : plan_.meters) meters_.emplace_back(meter.size);
  arrival_ = take_pass();
  held_limit_ = std::clamp(kMaxHeldBytes / std::max<std::size_t>(plan_.phv_bytes, 1), kMinHeld, kMaxHeld);
  for (const auto& table : plan_.tables) {
    tables_.push_back(std::make_unique<Table>(table, plan_.parameter_words));
  }
  adopt_plan();
}

/// Makes scratch memory as the plan wants it, and leads the tables' actions to its code.
void Engine::adopt_plan() {
  code_ = fuse(plan_.code);
  registers_.assign(plan_.registers, 0);
  std::copy(plan_.constants.begin(), plan_.constants.end(), registers_.begin());
  wides_.assign(std::size_t{plan_.wides} * plan_.limbs, 0);
  vectors_.assign(std::size_t{plan_.vectors} * plan_.lanes, 0);
  key_.assign(plan_.key_words + plan_.limbs, 0);
  for (std::size_t i = 0; i < tables_.size(); ++i) tables_[i]->adopt(plan_.tables[i], plan_.parameter_words);
}

Engine::~Engine() = default;

const Choice* Engine::choose(const Table& of, std::uint64_t group, const Pass& pass) {
  const std::uint64_t hash = calculate(plan_, plan_.calculations[of.plan().selector], pass, input_);
  return of.choose(group, hash);
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

void Engine::set_clone_session(std::uint32_t session, std::vector<Replica> replicas,
                               std::uint32_t packet_length) {
  const auto guard = lock();
  if (replicas.empty()) {
    sessions_.erase(session);
  } else {
    sessions_[session] = {std::move(replicas), packet_length};
  }
}

void Engine::set_group(std::uint32_t index, std::uint32_t group, std::vector<Choice> choices) {
  const auto guard = lock();
  table(index).set_group(group, std::move(choices));
}

void Engine::set_cpu_port(std::uint32_t port) {
  const auto guard = lock();
  cpu_port_ = port;
}

bool Engine::has_notices() {
  const auto guard = lock();
  return !digests_.empty() || !packets_.empty();
}

std::deque<Notices::Item> Engine::take_packets() {
  const auto guard = lock();
  return packets_.take();
}

std::deque<Notices::Item> Engine::take_digests() {
  const auto guard = lock();
  return digests_.take();
}

void Engine::set_idle_timeout(std::uint32_t index, std::uint64_t handle, std::uint64_t timeout_us,
                              std::uint64_t now_us) {
  const auto guard = lock();
  if (timeout_us && table(index).plan().timeouts == 0) throw std::invalid_argument("table: no time-outs");
  Entry& entry = table(index).entry(handle);
  entry.timeout_us = timeout_us;
  entry.last_hit_us = now_us;
  entry.reported_us = ~0ull;
}

std::uint64_t Engine::last_hit_us(std::uint32_t index, std::uint64_t handle) {
  const auto guard = lock();
  return table(index).entry(handle).last_hit_us;
}

std::vector<std::uint64_t> Engine::expired(std::uint32_t index, std::uint64_t now_us) {
  const auto guard = lock();
  return table(index).expired(now_us);
}

std::uint64_t Engine::now_us() {
  const auto guard = lock();
  return now_us_;
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
