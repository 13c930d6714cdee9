// SPDX-License-Identifier: Apache-2.0
// Where a rail reports, so that its owner knows of which lane it speaks.
#pragma once

#include <optional>

#include "agent/calls.hpp"
#include "rails/rail.hpp"

namespace railweave {

class LaneOwner {
 public:
  virtual ~LaneOwner() = default;
  virtual void slice_done(LaneId lane, std::uint64_t id, Time now) = 0;
  virtual void rail_failed(LaneId lane, const Failure& failure, Time now) = 0;
  virtual void stalled(std::size_t rail, const Stall& stall, Time now) = 0;
  virtual std::optional<CallDescription> pending_call(LaneId lane, std::uint32_t op_index) const = 0;
};

class LaneListener final : public RailListener {
 public:
  LaneListener(LaneOwner& owner, LaneId lane) : owner_(owner), lane_(lane) {}

  void slice_done(std::size_t, std::uint64_t id, Time now) override { owner_.slice_done(lane_, id, now); }
  void rail_failed(std::size_t, const Failure& failure, Time now) override {
    owner_.rail_failed(lane_, failure, now);
  }
  void stalled(std::size_t, const Stall& stall, Time now) override { owner_.stalled(lane_.rail, stall, now); }
  std::optional<CallDescription> pending_call(std::uint32_t op_index) const override {
    return owner_.pending_call(lane_, op_index);
  }

 private:
  LaneOwner& owner_;
  const LaneId lane_;
};

}  // namespace railweave
