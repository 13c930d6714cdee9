// SPDX-License-Identifier: Apache-2.0
#include "rails/sum_all_reduce.hpp"

#include <limits>

#include "core/bytes.hpp"
#include "ina/lanes.hpp"
#include "ina/packet.hpp"

namespace railweave {
namespace {

constexpr std::uint32_t kAllAhead = std::numeric_limits<std::uint32_t>::max() / 2;  // exponents before data
// The segment size without a link rate. Each message costs a clearance, acknowledgements and two
// super-packets that are not full. A ring posts four messages ahead, which fill the transport's window. With
// this size, devices did not recover from losses, so they do not use it.
constexpr std::size_t kUnshapedSegment = 252 * 1024 - 16;

std::byte* bytes_of(std::vector<std::int32_t>& integers) {
  return reinterpret_cast<std::byte*>(integers.data());
}

}  // namespace

bool sums_in_switch(const Slice& slice) {
  const CallDescription& call = slice.call;
  const bool adds = call.op == ReduceOp::kSum || call.op == ReduceOp::kAvg;
  return call.collective == Collective::kAllReduce && adds && ina::carries(call) &&
         slice.count * item_size(call.dtype) > kMostHostSumBytes;
}

SumAllReduce::SumAllReduce(Transport& transport, SumRing& ring, const Slice& slice,
                           const AlgorithmOptions& options)
    : transport_(transport),
      ring_(ring),
      slice_(slice),
      options_(options),
      lanes_(ring.packet_bytes() / ina::kLaneBytes),
      next_((slice.rank + 1) % slice.world_size),
      before_((slice.rank + slice.world_size - 1) % slice.world_size),
      call_(slice, {.lanes = static_cast<std::uint32_t>(lanes_), .lead = kAllAhead}) {}

// The greeting is the first message in either direction.
void SumAllReduce::note_sent(int peer) {
  if (peer == before_ && !greeting_sent_) {
    greeting_sent_ = true;
  } else {
    exponents_->note_sent(peer);
  }
}

// Called after all sums have arrived. The own greeting was sent before the sums.
bool SumAllReduce::awaits_sent(int peer) const { return exponents_ && exponents_->awaits_sent(peer); }

void SumAllReduce::note_received(int peer) {
  if (peer != next_ || greeted_) return exponents_->note_received(peer);
  greeted_ = true;
  SumRing::Target target{};
  load_fields(greeting_.data(), target.address, target.rkey);
  ring_.aim(target);
}

void SumAllReduce::advance(Time now) {
  if (!started_) start(now);
  // The own greeting is sent before the data. Behind the data, it would delay the rank before.
  if (!end_exponents(now) || !greeted_ || !greeting_sent_) return;
  while (take_sum() || post()) {
  }
}

void SumAllReduce::start(Time now) {
  started_ = true;
  const SumRing::Target inbox = ring_.inbox();
  store_fields(own_greeting_.data(), inbox.address, inbox.rkey);
  transport_.post_receive(next_, greeting_, now);
  transport_.post_send(before_, own_greeting_, now);
  // The exponents also show that all ranks are in the call.
  if (ring_.impatient() || call_.left(ina::Phase::kExponents) > 0) begin_exponents();
}

void SumAllReduce::begin_exponents() {
  std::vector<std::byte> lanes(lanes_ * ina::kLaneBytes);
  bool nonfinite = false;
  while (call_.left(ina::Phase::kExponents) > 0) {
    const ina::Item item = *call_.next();
    nonfinite = (call_.build(item, lanes.data()) & ina::flag::kNonfinite) != 0 || nonfinite;
    const std::size_t at = exponent_lanes_.size();
    exponent_lanes_.resize(at + lanes_);
    ina::decode_integers(lanes.data(), lanes_, ina::Order::kMax,
                         bytes_of(exponent_lanes_) + at * ina::kLaneBytes);
    exponent_items_.push_back(item);
  }
  exponent_lanes_.push_back(nonfinite ? 1 : 0);
  const CallDescription call{.op_index = slice_.call.op_index,
                             .collective = Collective::kAllReduce,
                             .dtype = DType::kInt32,
                             .op = ReduceOp::kMax,
                             .root = slice_.call.root,
                             .count = exponent_lanes_.size(),
                             .called = slice_.call.called};
  exponents_ = choose_algorithm(transport_,
                                {.id = 0,
                                 .call = call,
                                 .input = bytes_of(exponent_lanes_),
                                 .output = bytes_of(exponent_lanes_),
                                 .count = exponent_lanes_.size(),
                                 .stride = 0,
                                 .rank = slice_.rank,
                                 .world_size = slice_.world_size},
                                options_);
}

/// Continues the allreduce of exponents. Returns true if it is complete or not needed.
bool SumAllReduce::end_exponents(Time now) {
  if (!exponents_ || exponents_done_) return true;
  exponents_->advance(now);
  if (!exponents_->ready()) return false;
  exponents_done_ = true;
  nonfinite_ = exponent_lanes_.back() != 0;
  std::vector<std::byte> lanes(lanes_ * ina::kLaneBytes);
  const std::byte* from = bytes_of(exponent_lanes_);
  for (const ina::Item& item : exponent_items_) {
    ina::encode_integers(from, lanes_, ina::Order::kMax, lanes.data());
    call_.absorb(item, nonfinite_ ? ina::flag::kNonfinite : 0, lanes.data());
    from += lanes.size();
  }
  return true;
}

bool SumAllReduce::take_sum() {
  const Bytes sum = ring_.sum();
  if (sum.empty() || posted_.empty()) return false;
  const std::byte* from = sum.data();
  for (const ina::Item& item : posted_.front()) {
    call_.absorb(item, nonfinite_ ? ina::flag::kNonfinite : 0, from);
    from += ring_.packet_bytes();
  }
  posted_.pop_front();
  ring_.taken();
  return true;
}

bool SumAllReduce::post() {
  const MutableBytes room = ring_.room();
  if (room.empty() || !call_.next()) return false;
  std::vector<ina::Item>& items = posted_.emplace_back();
  std::size_t size = 0;
  for (auto item = call_.next(); item && size < room.size(); item = call_.next()) {
    call_.build(*item, room.data() + size);
    items.push_back(*item);
    size += ring_.packet_bytes();
  }
  ring_.post(size);
  return true;
}

std::unique_ptr<RingRail> make_rdma_rail(EventLoop& loop, std::unique_ptr<RdmaTransport> transport,
                                         RailListener& listener, std::uint64_t rate_bps) {
  const AlgorithmOptions options{.rate_bps = rate_bps};
  RdmaTransport& made = *transport;
  return std::make_unique<RingRail>(
      &loop, std::move(transport), listener, options,
      [&made, options](Transport& of, const Slice& slice) -> std::unique_ptr<Algorithm> {
        SumRing* const ring = made.sum_ring();
        if (ring == nullptr || !sums_in_switch(slice)) {
          AlgorithmOptions longer = options;
          if (options.rate_bps == 0 && !made.meets_devices()) longer.segment_bytes = kUnshapedSegment;
          return choose_algorithm(of, slice, longer);
        }
        return std::make_unique<SumAllReduce>(of, *ring, slice, options);
      });
}

}  // namespace railweave
