// SPDX-License-Identifier: Apache-2.0
// Transport over user-space RoCEv2: one reliable connection per pair of ranks, all on one interface.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "collectives/transport.hpp"
#include "loop/event_loop.hpp"
#include "rails/rdma_peer.hpp"
#include "roce/endpoint.hpp"

namespace railweave {

struct RdmaTransportOptions {
  std::string interface;
  std::string address;          // IPv4 of the interface, dotted
  std::size_t path_mtu = 1024;  // the same on all ranks
  std::uint64_t rate_bps = 0;   // of the link, bounds what is in flight; 0: unknown or unshaped
  Liveness liveness = {};
};

/// A rank as it has offered itself to the others.
struct RdmaMember {
  std::string address;                     // IPv4, dotted
  std::string mac;                         // "02:00:00:03:00:01"
  std::vector<std::uint32_t> queue_pairs;  // its queue pair for each rank; own place 0
};

/// Open from the start, so that what this rank offers is true; `connect` joins the queue pairs. Either end
/// may be first. If a peer goes, all is over: kPeerLost names it.
class RdmaTransport final : public Transport, private TransportListener, private ReadyHandler {
 public:
  /// Throws as roce::Endpoint does: no CAP_NET_RAW, no such interface or address, MTU too small.
  RdmaTransport(EventLoop& loop, const RdmaTransportOptions& options, int rank, int world_size);
  ~RdmaTransport() override;

  std::string mac() const;
  const std::vector<std::uint32_t>& queue_pairs() const { return queue_pairs_; }
  /// `members` are all ranks in order; own place is ignored. Throws std::invalid_argument that names the
  /// member and the field.
  void connect(const std::vector<RdmaMember>& members, Time now);

  std::string_view kind() const override { return "rdma"; }
  int world_size() const override { return static_cast<int>(queue_pairs_.size()); }
  int rank() const override { return rank_; }
  void set_listener(TransportListener* listener) override { listener_ = listener; }
  void begin(const MessageLabel& label, Time now) override;
  void pass_over(const CallDescription& call, Time now) override;
  bool hears(int peer, Time now) const override;
  void post_send(int peer, Bytes data, Time now) override;
  void post_receive(int peer, MutableBytes into, Time now) override;
  Time deadline() const override { return std::min(endpoint_.deadline(), beat_at_); }
  void expire(Time now) override;
  void announce(const Failure& failure, Time now) override;
  void abort() override;
  void close(Time now) override;
  bool closed() const override;
  RailStats stats() const override;

 private:
  void sent(int peer, Time now) override { listener_->sent(peer, now); }
  void received(int peer, Time now) override { listener_->received(peer, now); }
  std::optional<MessageLabel> pending_label(const SliceKey& key) const override {
    return listener_->pending_label(key);
  }
  void failed(const Failure& failure, Time now) override;
  void on_ready(std::uint32_t events, Time now) override;

  template <typename Action>
  void for_each_peer(const Action& action) const;
  template <typename Work>
  void guarded(const Work& work, Time now);
  void pump(Time now);
  void set_interest();

  EventLoop& loop_;
  const RdmaTransportOptions options_;
  const int rank_;
  roce::Endpoint endpoint_;
  std::vector<std::uint32_t> queue_pairs_;
  std::vector<std::unique_ptr<RdmaPeer>> peers_;  // by rank
  TransportListener* listener_ = nullptr;
  Time beat_at_ = kNever;
  std::uint32_t interest_ = 0;
  bool pumping_ = false;
  bool failed_ = false;
};

}  // namespace railweave
