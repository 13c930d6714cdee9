// SPDX-License-Identifier: Apache-2.0
// A packet's way through the program, event by event. Traced packets run another plan of the same program,
// with instructions that note what they do and without fusion. All other packets run the normal plan.
#pragma once

#include <cstdint>
#include <optional>
#include <utility>
#include <vector>

#include "engine/messages.hpp"

namespace railweave::engine {

// X(name in Python, enumerator): kinds of events.
// note: `what` is the number of a note in the program's plan.
// lookup: `what` is a table; the values are the key, the handle or 0, the action and its parameters.
// All other kinds are events of the traffic manager. `what` is a port, group, session, reason or error.
// clang-format off
#define RAILWEAVE_TRACE_KINDS(X) \
  X("received", kReceived) X("parsed", kParsed) X("note", kNote) X("lookup", kLookup) \
  X("resubmit", kResubmit) X("recirculate", kRecirculate) X("clone", kClone) X("multicast", kMulticast) \
  X("digest", kDigest) X("queued", kQueued) X("egress", kEgress) X("dropped", kDropped) \
  X("aborted", kAborted) X("emitted", kEmitted)

// Why a packet goes no further.
#define RAILWEAVE_TRACE_REASONS(X) \
  X("egress_spec is the drop port after ingress", kIngressDrop) \
  X("egress_spec is the drop port after egress", kEgressDrop) \
  X("there is no such multicast group", kNoGroup) \
  X("its priority has no queue", kPriority) \
  X("the queue of its port is full", kQueueFull) \
  X("it is too long", kTooLong) \
  X("too many passes through ingress or egress", kPasses) \
  X("too many resubmissions or recirculations", kRounds) \
  X("too many copies wait", kHeld) \
  X("the parser, a control or the deparser took too many steps, or an assertion failed", kSteps)
// clang-format on

#define X(name, enumerator) enumerator,
enum class TraceKind : std::uint32_t { RAILWEAVE_TRACE_KINDS(X) };
enum class Reason : std::uint32_t { RAILWEAVE_TRACE_REASONS(X) };
#undef X

struct TraceEvent {
  TraceKind kind;
  std::uint32_t what;
  std::vector<NotedValue> values;
};

using PacketTrace = std::vector<TraceEvent>;

inline constexpr std::size_t kMaxTraceEvents = 1 << 16;  // of one packet; later events are left out
inline constexpr std::uint32_t kMaxTracePackets = 1 << 10;

/// Records packets that come in on a port, until there are enough.
class Tracer {
 public:
  /// Records `packets` packets of a port, or of all ports without `port`.
  Tracer(std::optional<std::uint16_t> port, std::uint32_t packets) : port_(port), left_(packets) {}

  /// Starts a packet's record; false if this packet is not to be recorded.
  bool begin(std::uint16_t port) {
    if (left_ == 0 || port_.value_or(port) != port) return false;
    --left_;
    packets_.emplace_back();
    return true;
  }
  bool done() const { return left_ == 0; }
  void note(TraceKind kind, std::uint32_t what, std::vector<NotedValue> values) {
    if (packets_.back().size() < kMaxTraceEvents) packets_.back().push_back({kind, what, std::move(values)});
  }
  std::vector<PacketTrace> take() { return std::exchange(packets_, {}); }

 private:
  std::optional<std::uint16_t> port_;
  std::uint32_t left_;
  std::vector<PacketTrace> packets_;
};

}  // namespace railweave::engine
