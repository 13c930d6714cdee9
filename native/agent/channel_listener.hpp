// SPDX-License-Identifier: Apache-2.0
// Where a rail reports, so that its owner knows of which channel it speaks.
#pragma once

#include <optional>

#include "agent/calls.hpp"
#include "rails/rail.hpp"

namespace railweave {

class ChannelOwner {
 public:
  virtual ~ChannelOwner() = default;
  virtual void slice_done(ChannelId channel, std::uint64_t id, Time now) = 0;
  virtual void rail_failed(ChannelId channel, const Failure& failure, Time now) = 0;
  virtual void stalled(std::size_t rail, const Stall& stall, Time now) = 0;
  virtual std::optional<MessageLabel> pending_label(ChannelId channel, const SliceKey& key) const = 0;
};

class ChannelListener final : public RailListener {
 public:
  ChannelListener(ChannelOwner& owner, ChannelId channel) : owner_(owner), channel_(channel) {}

  void slice_done(std::uint64_t id, Time now) override { owner_.slice_done(channel_, id, now); }
  void rail_failed(const Failure& failure, Time now) override { owner_.rail_failed(channel_, failure, now); }
  void stalled(const Stall& stall, Time now) override { owner_.stalled(channel_.rail, stall, now); }
  std::optional<MessageLabel> pending_label(const SliceKey& key) const override {
    return owner_.pending_label(channel_, key);
  }

 private:
  ChannelOwner& owner_;
  const ChannelId channel_;
};

}  // namespace railweave
