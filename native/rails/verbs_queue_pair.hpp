// SPDX-License-Identifier: Apache-2.0
// A device's reliable connection to one peer. It keeps its number over restarts. Each restart joins it with
// other packet numbers, so late packets count as duplicates or gaps, which carry no data.
#pragma once

#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <string>

#include "rails/rdma_device.hpp"
#include "rails/verbs_memory.hpp"

namespace railweave {

/// The parts of a device that all its queue pairs share.
struct VerbsPort {
  std::string device;
  ibv_context* context = nullptr;
  ibv_cq* queue = nullptr;  // of completions
  std::uint8_t port = 1;
  std::uint8_t gid_index = 0;
  std::uint8_t traffic_class = 0;
  std::uint8_t timeout = 0;  // ACK timeout: 4.096 us * 2^timeout
  std::size_t path_mtu = 0;
};

class VerbsQueuePair final : public RdmaConnection {
 public:
  static constexpr std::uint32_t kSends = 64, kReceives = 64;  // that the device holds at once

  /// `port` and `wire` outlive the queue pair. Throws std::system_error.
  VerbsQueuePair(const VerbsPort& port, RdmaEndpointStats& wire);
  VerbsQueuePair(const VerbsQueuePair&) = delete;
  VerbsQueuePair& operator=(const VerbsQueuePair&) = delete;
  ~VerbsQueuePair() override;

  std::uint32_t number() const { return pair_->qp_num; }
  /// Throws std::system_error that names the peer's address, for example if it cannot be reached.
  void join(const roce::QueuePairOptions& options, roce::Ipv4Address peer, Time now);
  /// Hands the device as many requests as it has room for.
  void transmit(Time now);
  /// When `transmit` must be called; kNever if it need not be.
  Time deadline() const { return dead_ || sends_.empty() || posted_ > 0 ? kNever : opens_at_; }
  void complete(const ibv_wc& done, Time now);
  /// Marks the queue pair as dead, for the device's reason `why`.
  void died(const std::string& why);

  void post(const roce::WorkRequest& request) override;
  void post_receive(const roce::ReceiveRequest& request) override;
  std::optional<roce::Completion> poll() override;
  Offer offer(MutableBytes into) override;
  void take(std::uint32_t rkey) override;
  void drop(std::uint32_t rkey) override { withdraw(rkey); }  // the device may still write, until `abort`
  void withdraw(std::uint32_t rkey) override;
  Region region(std::size_t bytes) override;
  void set_patience(int, Duration) override {}  // the device's is fixed once it sends
  bool awaits_answer() const override { return signalled_ > 0; }
  std::size_t release_buffers() override;
  void abort() override;
  std::optional<Fault> fault() const override { return fault_; }
  const roce::QueuePairStats& stats() const override { return stats_; }

 private:
  using Block = VerbsMemory::Block;
  struct Send {
    roce::WorkRequest request;
    Block block;  // a copy of the data
    bool signalled;
  };
  struct Receive {
    roce::ReceiveRequest request;
    Block block;
  };
  struct Offered {
    MutableBytes into;
    Block block;
  };
  struct Destroy {
    void operator()(ibv_pd* domain) const { verbs().dealloc_pd(domain); }
    void operator()(ibv_qp* pair) const { verbs().destroy_qp(pair); }
  };

  Block block(std::size_t bytes);
  void bring_up();
  void modify(ibv_qp_attr& attributes, int mask, const char* what);
  bool hand_over(Send& send, std::uint32_t sequence);
  void hand_over(const Receive& receive);
  void count_sent(const Send& send);
  std::uint64_t tag(std::uint32_t number) const { return std::uint64_t{generation_} << 32 | number; }
  void complete_sends(std::uint32_t last);
  void complete_receive(const ibv_wc& done);
  void complete_badly(const ibv_wc& done, Time now);
  void reset();

  const VerbsPort& port_;
  RdmaEndpointStats& wire_;
  const std::unique_ptr<ibv_pd, Destroy> domain_;
  VerbsMemory memory_;
  std::unique_ptr<ibv_qp, Destroy> pair_;
  std::uint32_t inline_bytes_ = 0;

  roce::QueuePairOptions options_;
  roce::Ipv4Address peer_ = 0;
  Time opens_at_ = kNever;        // nothing is sent before
  Time patient_until_ = kNever;   // with a peer that has not answered yet
  bool answered_ = false;         // a completion shows that the peer is there
  bool reported_ = false;         // a request has been completed
  std::uint32_t generation_ = 0;  // of the device's requests: older completions are ignored

  std::deque<Send> sends_;
  std::uint32_t first_send_ = 0;  // sequence of the oldest send
  std::size_t posted_ = 0;        // of `sends_`: handed to the device
  std::size_t signalled_ = 0;     // of `sends_`: reported by the device
  int quiet_ = 0;                 // sends since the last signalled one
  std::deque<Receive> receives_;
  std::map<std::uint32_t, Offered> offers_;
  roce::Completions completions_;
  std::optional<Fault> fault_;
  bool dead_ = false;
  roce::QueuePairStats stats_;
};

}  // namespace railweave
