// SPDX-License-Identifier: Apache-2.0
// A rail that sums on the hosts: it runs the algorithms of collectives/ over a transport, one slice after the
// other.
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
/// Makes the machine of a slice that needs a special one, else nothing.
using SpecialAlgorithm = std::function<std::unique_ptr<Algorithm>(Transport&, const Slice&)>;

class RingRail final : public Rail, private TransportListener {
 public:
  RingRail(std::unique_ptr<Transport> transport, RailListener& listener, RingRailOptions options,
           SpecialAlgorithm special = {});

  Transport& transport() { return *transport_; }
  /// Something that the slice's machine waits for has happened, besides messages.
  void advance(Time now);
  /// Likewise, and it has brought the slice on.
  void moved(Time now);

  std::string_view kind() const override { return transport_->kind(); }
  bool takes() const override { return !slice_; }
  void start(const Slice& slice, Time now) override;
  Time deadline() const override { return transport_->deadline(); }
  void expire(Time now) override { transport_->expire(now); }
  void pass_over(const CallDescription& call, Time now) override { transport_->pass_over(call, now); }
  bool hears(int peer, Time now) const override { return transport_->hears(peer, now); }
  void abort() override;
  void halt(Time now) override;
  void restart(const Restart& restart, Time now) override;
  bool ready() const override { return transport_->ready(); }
  std::vector<std::uint64_t> next_chunks() const override { return transport_->positions(); }
  void announce(const Failure& failure, Time now) override { transport_->announce(failure, now); }
  void close(Time now) override { transport_->close(now); }
  bool closed() const override { return transport_->closed(); }
  RailStats stats() const override;
  std::uint64_t progress() const override { return progress_; }

 private:
  void sent(int peer, Time now) override;
  void received(int peer, Time now) override;
  void joined(Time now) override { advance(now); }
  std::optional<MessageLabel> pending_label(const SliceKey& key) const override {
    return listener_.pending_label(key);
  }
  void failed(const Failure& failure, Time now) override;

  void begin(Time now);
  void finish(Time now);
  void drop();

  const std::unique_ptr<Transport> transport_;
  RailListener& listener_;
  const RingRailOptions options_;
  const SpecialAlgorithm special_;
  std::optional<Slice> slice_;
  std::unique_ptr<Algorithm> machine_;              // of the slice, once it has begun
  std::deque<std::unique_ptr<Algorithm>> retired_;  // ready, but with sends of their own memory under way
  bool advancing_ = false;
  bool again_ = false;   // a completion came while advancing
  bool failed_ = false;  // or halted
  Time busy_since_ = 0;
  std::uint64_t progress_ = 0;  // messages sent and received, and what else moved slices
  RailStats stats_;
};

}  // namespace railweave
