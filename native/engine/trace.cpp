// SPDX-License-Identifier: Apache-2.0
#include "engine/trace.hpp"

#include <utility>

namespace railweave::engine {

bool Tracer::begin(std::uint16_t port) {
  if (left_ == 0 || port_.value_or(port) != port) return false;
  --left_;
  packets_.emplace_back();
  return true;
}

void Tracer::note(TraceKind kind, std::uint32_t what, std::vector<NotedValue> values) {
  if (packets_.back().size() >= kMaxTraceEvents) return;
  packets_.back().push_back({kind, what, std::move(values)});
}

void Tracer::note(TraceKind kind, std::uint32_t what, std::initializer_list<std::uint64_t> values) {
  std::vector<NotedValue> noted;
  for (const std::uint64_t value : values) noted.push_back({{value}});
  note(kind, what, std::move(noted));
}

}  // namespace railweave::engine
