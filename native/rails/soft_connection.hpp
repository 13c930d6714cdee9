// SPDX-License-Identifier: Apache-2.0
// A queue pair in user space, as a connection of RDMA rails.
#pragma once

#include <optional>
#include <utility>
#include <vector>

#include "rails/rdma_device.hpp"
#include "roce/queue_pair.hpp"

namespace railweave {

class SoftConnection final : public RdmaConnection {
 public:
  SoftConnection(roce::QueuePair& queue_pair, roce::MemoryRegions& memory)
      : queue_pair_(queue_pair), memory_(memory) {}

  void post(const roce::WorkRequest& request) override { queue_pair_.post(request); }
  void post_receive(const roce::ReceiveRequest& request) override { queue_pair_.post_receive(request); }
  std::optional<roce::Completion> poll() override { return queue_pair_.poll(); }
  Offer offer(MutableBytes into) override {
    return {.address = reinterpret_cast<std::uintptr_t>(into.data()),
            .rkey = memory_.add(into, queue_pair_.options().qpn)};
  }
  void take(std::uint32_t rkey) override { memory_.remove(rkey); }
  void drop(std::uint32_t rkey) override { memory_.remove(rkey); }
  void withdraw(std::uint32_t rkey) override { memory_.release_buffer(rkey); }
  void set_patience(int retries, Duration max_timeout) override {
    queue_pair_.set_patience(retries, max_timeout);
  }
  bool awaits_answer() const override { return queue_pair_.requester().queued() > 0; }
  std::size_t release_buffers() override { return queue_pair_.release_buffers(); }
  Region region(std::size_t bytes) override {
    region_.resize(bytes);
    region_key_ = memory_.add(region_, queue_pair_.options().qpn);
    return {.bytes = region_, .rkey = *region_key_};
  }
  void abort() override {
    if (region_key_) memory_.remove(*std::exchange(region_key_, std::nullopt));
    queue_pair_.abort();
  }
  std::optional<Fault> fault() const override {
    if (!queue_pair_.failed()) return std::nullopt;
    return Fault{FailureKind::kRailDown, "broke the connection with a request that makes no sense"};
  }
  const roce::QueuePairStats& stats() const override { return queue_pair_.stats(); }

 private:
  roce::QueuePair& queue_pair_;
  roce::MemoryRegions& memory_;
  std::vector<std::byte> region_;
  std::optional<std::uint32_t> region_key_;
};

}  // namespace railweave
