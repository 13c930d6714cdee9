// SPDX-License-Identifier: Apache-2.0
#include "engine/engine.hpp"

#include <dlfcn.h>

#include <algorithm>
#include <stdexcept>

namespace railweave::engine {
namespace {

std::uint64_t fnv(Bytes bytes) {
  std::uint64_t hash = 0;
  for (const std::byte byte : bytes) hash = detail::mix(hash, static_cast<std::uint64_t>(byte));
  return hash;
}

/// Whether two plans keep their state in the same places, so that packets can run either.
bool same_state(const Plan& a, const Plan& b) {
  const auto same_table = [](const TablePlan& x, const TablePlan& y) {
    return x.kind == y.kind && x.words == y.words && x.size == y.size && x.meter == y.meter &&
           x.selector == y.selector && x.actions.size() == y.actions.size();
  };
  return a.phv_bytes == b.phv_bytes && a.metadata_bytes == b.metadata_bytes &&
         a.headers.size() == b.headers.size() && a.counters == b.counters && a.banks == b.banks &&
         a.arrays == b.arrays && a.meters == b.meters &&
         std::equal(a.tables.begin(), a.tables.end(), b.tables.begin(), b.tables.end(), same_table);
}

}  // namespace

Engine::Engine(Bytes plan) : Engine(Plan::parse(plan), fnv(plan)) {}

Engine::Engine(Plan plan, std::uint64_t hash)
    : state_(plan),
      hash_(hash),
      machine_(std::move(plan), state_),
      traffic_manager_(state_, machine_.plan().phv_bytes) {}

void Engine::Close::operator()(void* library) const { dlclose(library); }

void Engine::use(const std::string& path) {
  Library library(dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL));
  if (!library) throw std::invalid_argument(dlerror());
  const auto* compiled = static_cast<const CompiledPlan*>(dlsym(library.get(), "railweave_compiled"));
  if (compiled == nullptr || compiled->abi != kAbi || compiled->plan != hash_) {
    throw std::invalid_argument(path + " is not compiled from this plan for this build");
  }
  const auto guard = traffic();
  machine_.use(compiled);
  library_.swap(library);
}

void Engine::process(std::uint16_t port, Bytes packet, std::uint64_t now_us, OutputSink& sink) {
  state_.now_us = now_us;
  if (!trace_ || !trace_->tracer.begin(port)) [[likely]]
    return traffic_manager_.process(machine_, port, packet, sink);
  traffic_manager_.process(trace_->machine, port, packet, sink);
  if (!trace_->tracer.done()) return;
  collect_traces();
  trace_.reset();
}

bool Engine::release(std::uint16_t port, std::uint64_t now_us, OutputSink& sink) {
  state_.now_us = now_us;
  return traffic_manager_.release(machine_, port, sink);
}

void Engine::start_trace(Bytes plan, std::optional<std::uint16_t> port, std::uint32_t packets) {
  if (packets == 0 || packets > kMaxTracePackets) throw std::invalid_argument("trace: number of packets");
  Plan noting = Plan::parse(plan);
  const auto guard = control();
  if (trace_) throw std::logic_error("trace: one is running");
  if (!same_state(machine_.plan(), noting)) throw InvalidPlan("a trace's plan is of another program");
  for (auto& table : state_.tables) table->reserve_parameters(noting.parameter_words);
  trace_ = std::make_unique<Trace>(std::move(noting), state_, Tracer(port, packets));
}

void Engine::collect_traces() {
  for (auto& packet : trace_->tracer.take()) traces_.push_back(std::move(packet));
}

std::vector<PacketTrace> Engine::take_traces() {
  const auto guard = control();
  if (trace_) collect_traces();
  return std::exchange(traces_, {});
}

bool Engine::stop_trace() {
  const auto guard = control();
  traces_.clear();
  return std::exchange(trace_, nullptr) != nullptr;
}

bool Engine::tracing() {
  const auto guard = control();
  return trace_ != nullptr;
}

}  // namespace railweave::engine
