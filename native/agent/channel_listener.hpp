// SPDX-License-Identifier: Apache-2.0
// Passes the reports of a rail to the agent, with the rail's channel.
#pragma once

#include <optional>

#include "agent/calls.hpp"
#include "rails/rail.hpp"

namespace railweave {

class Agent;

class ChannelListener final : public RailListener {
 public:
  ChannelListener(Agent& agent, ChannelId channel) : agent_(agent), channel_(channel) {}

  void slice_done(std::uint64_t id, Time now) override;
  void rail_failed(const Failure& failure, Time now) override;
  void stalled(const Stall& stall, Time now) override;
  std::optional<MessageLabel> own_label(const SliceKey& key) const override;

 private:
  Agent& agent_;
  const ChannelId channel_;
};

}  // namespace railweave
