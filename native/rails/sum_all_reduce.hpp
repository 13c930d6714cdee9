// SPDX-License-Identifier: Apache-2.0
// An allreduce in which the switch sums the messages that the ranks write to each other.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <vector>

#include "collectives/algorithm.hpp"
#include "collectives/choose.hpp"
#include "ina/call.hpp"
#include "rails/rdma_transport.hpp"
#include "rails/ring_rail.hpp"

namespace railweave {

/// The hosts sum slices of up to this size, because the greeting would take longer than the switch saves.
inline constexpr std::size_t kMostHostSumBytes = 4096;
/// Whether the switch can add the slice, and is faster than the algorithm of choose_algorithm.
bool sums_in_switch(const Slice& slice);

/// Contributions are those of an in-network rail (ina::Call), so results and error bound are the same. The
/// switch only adds. So the ranks agree on exponents by an allreduce with MAX over the transport. The
/// transport also carries each rank's greeting to the rank before, whose label shows if calls differ. The
/// exponents show whether a rank has NaN or Inf. Then every chunk's classes are counted.
class SumAllReduce final : public Algorithm {
 public:
  /// `transport` and `ring` outlive it.
  SumAllReduce(Transport& transport, SumRing& ring, const Slice& slice, const AlgorithmOptions& options);

  void note_sent(int peer) override;
  bool awaits_sent(int peer) const override;
  void note_received(int peer) override;
  /// Must also be called after a completion of the ring.
  void advance(Time now) override;
  bool ready() const override { return call_.complete(); }
  bool finished() const override { return ready() && (!exponents_ || exponents_->finished()); }

 private:
  void start(Time now);
  void begin_exponents();
  bool end_exponents(Time now);
  bool take_sum();
  bool post();

  Transport& transport_;
  SumRing& ring_;
  const Slice slice_;
  const AlgorithmOptions options_;
  const std::size_t lanes_;
  const int next_, before_;  // ranks
  ina::Call call_;
  bool started_ = false;
  bool greeting_sent_ = false, greeted_ = false;
  std::array<std::byte, 12> own_greeting_{}, greeting_{};
  std::unique_ptr<Algorithm> exponents_;  // if floats are summed, or the ring is impatient
  std::vector<ina::Item> exponent_items_;
  std::vector<std::int32_t> exponent_lanes_;  // of these items, and a flag for NaN and Inf
  bool exponents_done_ = false;
  bool nonfinite_ = false;
  std::deque<std::vector<ina::Item>> posted_;  // by message
};

/// Returns a rail over an RDMA transport. While a switch adds, it computes the sums that it can.
std::unique_ptr<RingRail> make_rdma_rail(EventLoop& loop, std::unique_ptr<RdmaTransport> transport,
                                         RailListener& listener, std::uint64_t rate_bps);

}  // namespace railweave
