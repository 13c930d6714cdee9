// SPDX-License-Identifier: Apache-2.0
// An allreduce whose sums a switch makes of what the ranks write to each other.
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

/// The hosts sum slices of up to this size: the greeting would take longer than the switch saves.
inline constexpr std::size_t kMostHostSumBytes = 4096;
/// Whether it is quicker than what choose_algorithm would take, and the switch can add it.
bool sums_in_switch(const Slice& slice);

/// Contributions are those of an in-network rail (ina::Call), so that the results, and their error bound, are
/// the same. The switch only adds: common exponents are the ranks' own allreduce with MAX, over the
/// transport. So is each rank's greeting to the one before it, by which ranks also find out that they call
/// different things. Of NaN and Inf anywhere the exponents tell; then every chunk's classes are counted.
class SumAllReduce final : public Algorithm {
 public:
  /// `transport` and `ring` outlive it.
  SumAllReduce(Transport& transport, SumRing& ring, const Slice& slice, const AlgorithmOptions& options);

  void note_sent(int peer) override;
  bool awaits_sent(int peer) const override;
  void note_received(int peer) override;
  /// Also to be called when the ring has completed something.
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

/// A rail of an RDMA transport, whose sums the switch makes where it can, while there is one that adds.
std::unique_ptr<RingRail> make_rdma_rail(EventLoop& loop, std::unique_ptr<RdmaTransport> transport,
                                         RailListener& listener, std::uint64_t rate_bps);

}  // namespace railweave
