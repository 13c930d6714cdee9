// SPDX-License-Identifier: Apache-2.0
#include "engine/trace.hpp"

#include <algorithm>
#include <stdexcept>
#include <utility>

#include "engine/engine.hpp"

namespace railweave::engine {
namespace {

template <typename T, typename Same>
bool alike(const std::vector<T>& a, const std::vector<T>& b, Same same) {
  return std::equal(a.begin(), a.end(), b.begin(), b.end(), same);
}

/// Whether two plans keep their state in the same places, so that one can take over from the other.
bool same_state(const Plan& a, const Plan& b) {
  const auto table = [](const TablePlan& x, const TablePlan& y) {
    return x.kind == y.kind && x.words == y.words && x.size == y.size && x.meter == y.meter &&
           x.selector == y.selector && x.actions.size() == y.actions.size();
  };
  const auto bank = [](const BankPlan& x, const BankPlan& y) {
    return x.rows == y.rows && x.words == y.words;
  };
  const auto array = [](const RegisterPlan& x, const RegisterPlan& y) {
    return x.bank == y.bank && x.word == y.word && x.size == y.size && x.width == y.width;
  };
  const auto meter = [](const MeterPlan& x, const MeterPlan& y) {
    return x.size == y.size && x.rates == y.rates && x.bytes == y.bytes;
  };
  return a.phv_bytes == b.phv_bytes && a.metadata_bytes == b.metadata_bytes &&
         a.headers.size() == b.headers.size() && a.counters == b.counters &&
         alike(a.tables, b.tables, table) && alike(a.banks, b.banks, bank) &&
         alike(a.arrays, b.arrays, array) && alike(a.meters, b.meters, meter);
}

}  // namespace

bool Tracer::begin(std::uint16_t port) {
  recording_ = false;
  if (left_ == 0) return false;
  if (port_.value_or(port) != port) return true;
  --left_;
  recording_ = true;
  packets_.emplace_back();
  return true;
}

void Tracer::note(TraceKind kind, std::uint32_t what, std::vector<NotedValue> values) {
  if (!recording_ || packets_.back().size() >= kMaxTraceEvents) return;
  packets_.back().push_back({kind, what, std::move(values)});
}

void Tracer::note(TraceKind kind, std::uint32_t what, std::initializer_list<std::uint64_t> values) {
  std::vector<NotedValue> noted;
  for (const std::uint64_t value : values) noted.push_back({{value}});
  note(kind, what, std::move(noted));
}

void Engine::start_trace(Bytes plan, std::optional<std::uint16_t> port, std::uint32_t packets) {
  if (packets == 0 || packets > kMaxTracePackets) throw std::invalid_argument("trace: number of packets");
  Plan noting = Plan::parse(plan);
  const auto guard = lock();
  if (tracer_) throw std::logic_error("trace: one is running");
  if (!same_state(plan_, noting)) throw InvalidPlan("a trace's plan is of another program");
  tracer_ = std::make_unique<Tracer>(port, packets);
  untraced_ = std::exchange(plan_, std::move(noting));
  adopt_plan();
}

void Engine::end_trace() {
  for (auto& packet : tracer_->take()) traces_.push_back(std::move(packet));
  tracer_.reset();
  plan_ = std::move(untraced_);
  adopt_plan();
}

bool Engine::stop_trace() {
  const auto guard = lock();
  const bool running = tracer_ != nullptr;
  if (running) end_trace();
  traces_.clear();
  return running;
}

std::vector<PacketTrace> Engine::take_traces() {
  const auto guard = lock();
  std::vector<PacketTrace> taken = std::exchange(traces_, {});
  if (tracer_) {
    for (auto& packet : tracer_->take()) taken.push_back(std::move(packet));
  }
  return taken;
}

bool Engine::tracing() {
  const auto guard = lock();
  return tracer_ != nullptr;
}

/// What the TABLE instruction behind it will find.
void Engine::note_lookup(std::uint32_t index, const Pass& pass) {
  if (!tracer_) return;
  Table& of = *tables_[index];
  Entry* hit = of.lookup(key_.data());
  const Entry& entry = hit ? *hit : of.fallback();
  std::uint32_t action = entry.action;
  const std::vector<std::uint64_t>* parameters = &entry.parameters;
  std::uint64_t group = kNone;
  if (action == kGroup) {
    group = parameters->at(0);
    const Choice* choice = choose(of, group, pass);
    action = choice ? choice->action : kNone;
    if (choice) parameters = &choice->parameters;
  }
  const auto key_end = key_.begin() + of.plan().words;
  tracer_->note(TraceKind::kLookup, index,
                {{std::vector<std::uint64_t>(key_.begin(), key_end)},
                 {{hit ? hit->handle : 0}},
                 {{action}},
                 {*parameters},
                 {{group}}});
}

}  // namespace railweave::engine
