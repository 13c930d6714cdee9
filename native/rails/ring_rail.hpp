// SPDX-License-Identifier: Apache-2.0
// A rail that sums on the hosts. It runs algorithms of collectives/ over a transport, one slice at a time.
#pragma once

#include <deque>
#include <functional>
#include <memory>
#include <vector>

#include "collectives/choose.hpp"
#include "collectives/transport.hpp"
#include "rails/rail.hpp"

namespace railweave {

using RingRailOptions = AlgorithmOptions;
/// Returns the algorithm of a slice that needs a special one, else null.
using SpecialAlgorithm = std::function<std::unique_ptr<Algorithm>(Transport&, const Slice&)>;

class RingRail : public Rail, protected TransportListener {
 public:
  RingRail(EventLoop* loop, std::unique_ptr<Transport> transport, RailListener& listener,
           RingRailOptions options, SpecialAlgorithm special = {});

  Transport& transport() { return *transport_; }
  /// Continues the slice after an event that is no message.
  void advance(Time now);
  /// Does the same, and counts the event as progress.
  void moved(Time now);

  std::string_view kind() const override { return transport_->kind(); }

 protected:
  bool do_can_start() const override { return !slice_; }
  void do_start(const Slice& slice, Time now) override;
  Time do_deadline() const override { return transport_->deadline(); }
  void do_expire(Time now) override { transport_->expire(now); }
  void do_skip_call(Time now) override { transport_->skip_call(now); }
  bool do_heard_recently(int peer, Time now) const override { return transport_->heard_recently(peer, now); }
  void do_abort() override;
  void do_halt(Time now) override;
  void do_restart(const Restart& restart, Time now) override;
  bool do_ready() const override { return transport_->ready(); }
  std::vector<std::uint64_t> do_next_chunks() const override { return transport_->positions(); }
  void do_announce(const Failure& failure, Time now) override { transport_->announce(failure, now); }
  void do_close(Time now) override { transport_->close(now); }
  bool do_closed() const override { return transport_->closed(); }
  RailStats do_stats() const override;
  std::uint64_t do_progress() const override { return progress_; }

  void sent(int peer, Time now) override;
  void received(int peer, Time now) override;
  void joined(Time now) override { advance(now); }
  std::optional<MessageLabel> own_label(const SliceKey& key) const override {
    return listener_.own_label(key);
  }
  void failed(const Failure& failure, Time now) override;
  bool has_failed() const { return failed_; }
  bool has_slice() const { return slice_.has_value(); }
  /// Drops the slice and the machines with their messages.
  void drop();

 private:
  void begin(Time now);
  void finish(Time now);

  const std::unique_ptr<Transport> transport_;
  const RingRailOptions options_;
  const SpecialAlgorithm special_;
  std::optional<Slice> slice_;
  std::unique_ptr<Algorithm> machine_;              // of the slice, once it has begun
  std::deque<std::unique_ptr<Algorithm>> retired_;  // ready, but their own memory is still being sent
  bool advancing_ = false;
  bool again_ = false;   // a completion came while advancing
  bool failed_ = false;  // or halted
  Time busy_since_ = 0;
  std::uint64_t progress_ = 0;  // messages sent and received, and calls of `moved`
  RailStats stats_;
};

}  // namespace railweave
