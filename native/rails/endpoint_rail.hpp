// SPDX-License-Identifier: Apache-2.0
// A rail whose slices an endpoint of railweave.sdk carries. The endpoint runs in a separate thread, because
// its code may be slow or hang.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "core/descriptor.hpp"
#include "rails/rail.hpp"

namespace railweave {

/// The next step of the endpoint's thread. `incarnation` is that of the rail.
struct EndpointWork {
  enum class Kind : std::uint8_t { kCall, kRestart, kHalt };
  Kind kind;
  std::uint32_t incarnation;
  DType dtype{};                   // of a call
  ReduceOp op{};                   // of a call
  std::vector<std::byte> input{};  // of a call
  std::uint64_t position = 0;      // of a restart: the greatest of all ranks' positions
};

/// Datagrams that the endpoint's thread has sent and received, and their bytes.
struct EndpointTraffic {
  std::uint64_t sent = 0;
  std::uint64_t sent_bytes = 0;
  std::uint64_t resent = 0;  // of these
  std::uint64_t resent_bytes = 0;
  std::uint64_t received = 0;
  std::uint64_t received_bytes = 0;
};

/// The endpoint's thread calls the public functions, and the loop's thread the others. The thread works on
/// copies of the slices, so that an endpoint that hangs never touches memory that is the caller's again.
class EndpointRail final : public Rail {
 public:
  EndpointRail(EventLoop& loop, RailListener& listener);

  std::string_view kind() const override { return "algorithm"; }

  /// A descriptor that is readable while there may be work.
  int work_descriptor() const { return wake_.get(); }
  std::vector<EndpointWork> take();
  /// Packets before `position` are used from now on. Returns false if the rail was halted: then none may be
  /// sent, because a restart may use these positions. A position of 0 counts as 1, so that a restart after
  /// any packet has a position.
  bool reserve(std::uint32_t incarnation, std::uint64_t position);
  void count(const EndpointTraffic& traffic);
  /// Completes the oldest call with its result.
  void finish(std::uint32_t incarnation, std::vector<std::byte> result);
  void fail(std::uint32_t incarnation, std::string reason);

 private:
  bool do_can_start() const override { return slices_.size() < kMostSlices; }
  void do_start(const Slice& slice, Time now) override;
  Time do_deadline() const override { return kNever; }
  void do_expire(Time) override {}
  void do_abort() override { drop(); }
  void do_halt(Time) override { drop(); }
  void do_restart(const Restart& restart, Time now) override;
  bool do_ready() const override { return true; }
  std::vector<std::uint64_t> do_next_chunks() const override;
  RailStats do_stats() const override;
  std::uint64_t do_progress() const override;

  static constexpr std::size_t kMostSlices = 2;  // one in progress, and the next one

  void put(EndpointWork work);
  void drop();
  void complete(const std::vector<std::byte>& result, Time now);
  /// Runs the task on the loop's thread, unless the rail has been halted since.
  template <typename Task>
  void post(std::uint32_t incarnation, Task task);

  EventLoop& events_;
  const Descriptor wake_;
  std::deque<Slice> slices_{};
  Time busy_since_ = 0;
  RailStats stats_{};

  mutable std::mutex mutex_;  // guards the members below
  std::vector<EndpointWork> work_{};
  std::optional<std::uint32_t> incarnation_ = 0;  // none while the rail is halted
  std::uint64_t position_ = 0;
  EndpointTraffic traffic_{};
};

}  // namespace railweave
