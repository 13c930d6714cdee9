// SPDX-License-Identifier: Apache-2.0
// A packet's way through the program, event by event. While a trace runs, the engine runs another plan of the
// same program: not fused, and with instructions that tell what they do. Otherwise a trace costs nothing.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <optional>
#include <utility>
#include <vector>

#include "engine/plan.hpp"

namespace railweave::engine {

/// A number of a message or a trace, least significant word first.
struct NotedValue {
  std::vector<std::uint64_t> words;
  bool negative = false;
};

// X(name in Python, enumerator): what happened.
// note: the program's plan says what (`what` is the note's number); lookup: a table (key, handle or 0, action
// and parameters); the rest: traffic management, with a port, group, session, reason or error as `what`.
// clang-format off
#define RAILWEAVE_TRACE_KINDS(X) \
  X("received", kReceived) X("parsed", kParsed) X("note", kNote) X("lookup", kLookup) \
  X("resubmit", kResubmit) X("recirculate", kRecirculate) X("clone", kClone) X("multicast", kMulticast) \
  X("digest", kDigest) X("egress", kEgress) X("dropped", kDropped) X("aborted", kAborted) \
  X("emitted", kEmitted)
// clang-format on

enum class TraceKind : std::uint32_t {
#define X(name, enumerator) enumerator,
  RAILWEAVE_TRACE_KINDS(X)
#undef X
};

// Why a packet goes no further.
// clang-format off
#define RAILWEAVE_TRACE_REASONS(X) \
  X("egress_spec is the drop port after ingress", kIngressDrop) \
  X("egress_spec is the drop port after egress", kEgressDrop) \
  X("there is no such multicast group", kNoGroup) \
  X("its priority has no queue", kPriority) \
  X("it is too long", kTooLong) \
  X("too many passes through ingress or egress", kPasses) \
  X("too many resubmissions or recirculations", kRounds) \
  X("too many copies wait", kHeld) \
  X("the parser, a control or the deparser took too many steps, or an assertion failed", kSteps)
// clang-format on

enum class Reason : std::uint32_t {
#define X(text, enumerator) enumerator,
  RAILWEAVE_TRACE_REASONS(X)
#undef X
};

struct TraceEvent {
  TraceKind kind;
  std::uint32_t what;
  std::vector<NotedValue> values;
};

using PacketTrace = std::vector<TraceEvent>;

inline constexpr std::size_t kMaxTraceEvents = 1 << 16;  // of one packet; what is more is left out
inline constexpr std::uint32_t kMaxTracePackets = 1 << 10;

/// Records packets that come in on a port, until there are enough.
class Tracer {
 public:
  /// Records `packets` packets, from any port if there is none.
  Tracer(std::optional<std::uint16_t> port, std::uint32_t packets) : port_(port), left_(packets) {}

  /// A packet came in; false: the trace had ended before it.
  bool begin(std::uint16_t port);
  void note(TraceKind kind, std::uint32_t what, std::vector<NotedValue> values);
  void note(TraceKind kind, std::uint32_t what, std::initializer_list<std::uint64_t> values = {});
  std::vector<PacketTrace> take() { return std::exchange(packets_, {}); }

 private:
  std::optional<std::uint16_t> port_;
  std::uint32_t left_;
  bool recording_ = false;
  std::vector<PacketTrace> packets_;
};

}  // namespace railweave::engine
