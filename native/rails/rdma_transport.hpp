// SPDX-License-Identifier: Apache-2.0
// Transport over RoCEv2 on one interface, by a device or user space: one reliable connection per pair of
// ranks.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "collectives/call_check.hpp"
#include "collectives/transport.hpp"
#include "loop/event_loop.hpp"
#include "rails/rdma_endpoint.hpp"
#include "rails/rdma_peer.hpp"
#include "rails/sum_ring.hpp"

namespace railweave {

/// Where the queue pairs are. A device may hold RoCEv2's UDP port, and then user space cannot use it.
enum class RdmaPlace : std::uint8_t { kAny, kDevice, kUserSpace };  // kAny: a device if there is one

struct RdmaTransportOptions {
  std::string interface;
  std::string address;          // IPv4 of the interface, dotted
  std::size_t path_mtu = 1024;  // the same on all ranks
  std::uint64_t rate_bps = 0;   // of the link, bounds the bytes in flight; 0: unknown or unshaped
  Liveness liveness = {};
  bool sums = false;  // offers connections that a switch may add up
  RdmaPlace place = RdmaPlace::kUserSpace;
  std::uint8_t traffic_class = 0;  // of a device's packets: DSCP and ECN bits, as in the IPv4 header
};

/// Queue pair numbers that a rank offers for the sum ring: `out` sends to the next rank, `into` receives from
/// the previous rank. The previous rank gets `alias` instead of `into`. Packets to `alias` reach no connected
/// queue pair: only a switch that adds knows `into`.
struct SumNumbers {
  std::uint32_t out, into, alias;
};

/// The first packet number, in `incarnation`, of a queue pair whose number is `first` in incarnation 0.
std::uint32_t first_packet_number(std::uint32_t first, std::uint32_t incarnation);

/// The number, in `incarnation`, of a queue pair whose number is `first` in incarnation 0. Numbers that
/// differ in one incarnation differ in all. A number comes back only after more than 65,000 incarnations.
std::uint32_t queue_pair_number(std::uint32_t first, std::uint32_t incarnation);

/// A rank as it has offered itself to the others.
struct RdmaMember {
  std::string address;                     // IPv4, dotted
  std::string mac;                         // "02:00:00:03:00:01"
  std::vector<std::uint32_t> queue_pairs;  // its queue pair for each rank; 0 for itself
  bool device = false;                     // a device's queue pairs keep their numbers
};

/// The constructor reserves the queue pairs that this rank offers; `connect` joins them. Either end may be
/// first. If a peer is lost, kSilent names it, and all connections end until they are halted and restarted.
/// After a restart, `ready` waits for every peer's first answer. In user space, a restart changes the queue
/// pair numbers, so late packets reach no queue pair. A device keeps them, but packet numbers change, so late
/// packets count as duplicates or gaps. Connections that a switch adds up keep their queue pair numbers,
/// which the switch knows. Their packet numbers continue beyond all that any rank has used.
class RdmaTransport final : public Transport, private TransportListener, private ReadyHandler {
 public:
  /// Throws as RdmaEndpoint does: no CAP_NET_RAW, no such interface or address, MTU too small. With
  /// RdmaPlace::kDevice, throws as open_verbs_device does.
  RdmaTransport(EventLoop& loop, const RdmaTransportOptions& options, int rank, int world_size);
  ~RdmaTransport() override;

  std::string mac() const;  // "" on a device, which resolves addresses itself
  bool on_device() const { return device_->keeps_numbers(); }
  /// True if some rank uses a device. All ranks know this once they are connected.
  bool meets_devices() const { return devices_; }
  /// "on device mlx5_0", "in user space: no RDMA device has …"
  std::string where() const;
  const std::vector<std::uint32_t>& queue_pairs() const { return queue_pairs_; }
  /// Only with the option `sums`.
  const SumNumbers& sum_numbers() const { return sum_numbers_; }
  /// Announces that a switch adds up the connections of `members`. Call it before `connect`. `moved` is
  /// called when the ring has completed something. Throws std::invalid_argument.
  void sum(const std::vector<SumNumbers>& members, std::size_t window_packets,
           std::function<void(Time)> moved);
  /// Null if no switch adds, and while halted.
  SumRing* sum_ring() { return sum_ring_.get(); }
  /// `members` are all ranks in order; this rank's entry is ignored. `key` authenticates control messages.
  /// Throws std::invalid_argument that names the member and the field.
  void connect(const Key& key, const std::vector<RdmaMember>& members, Time now);

  std::string_view kind() const override { return "rdma"; }
  int world_size() const override { return static_cast<int>(queue_pairs_.size()); }
  int rank() const override { return rank_; }
  void set_listener(TransportListener* listener) override { listener_ = listener; }
  void begin(const MessageLabel& label, Time now) override;
  void skip_call(Time now) override;
  bool heard_recently(int peer, Time now) const override;
  void post_send(int peer, Bytes data, Time now) override;
  void post_receive(int peer, MutableBytes into, Time now) override;
  Time deadline() const override;
  void expire(Time now) override;
  void announce(const Failure& failure, Time now) override;
  void abort() override;
  void halt(Time now) override;
  void restart(std::uint32_t incarnation, Time now) override;
  std::vector<std::uint64_t> positions() const override;
  void set_positions(const std::vector<std::uint64_t>& positions) override;
  bool ready() const override { return joined_; }
  void close(Time now) override;
  bool closed() const override;
  RailStats stats() const override;

 private:
  void sent(int peer, Time now) override { listener_->sent(peer, now); }
  void received(int peer, Time now) override { listener_->received(peer, now); }
  void failed(const Failure& failure, Time now) override;
  void on_ready(std::uint32_t events, Time now) override;

  template <typename Action>
  void for_each_peer(const Action& action) const;
  template <typename Work>
  void guarded(const Work& work, Time now);
  struct Way {
    roce::Ipv4Address address;
    roce::MacAddress mac;
    std::uint32_t queue_pair;  // the peer's for this rank, in incarnation 0
    bool keeps_number;
    std::string name;  // "rank 2 at 10.3.0.3"
  };
  /// A halted connection. It is freed later, because `halt` may be called from inside it.
  struct Halted {
    std::unique_ptr<RdmaPeer> peer;
    std::uint32_t number;
  };

  std::unique_ptr<RdmaDevice> open_device(int world_size);
  void follow_interface();
  void join(std::uint32_t incarnation, Time now);
  void meet(std::size_t peer, Time now);
  void join_ring(Time now);
  std::size_t short_bytes() const;
  roce::QueuePairOptions pair_options() const;
  roce::MacAddress mac_of(const Way& way) const;
  std::uint32_t own_number(std::size_t peer, std::uint32_t incarnation) const;
  /// The key for the codes of control messages from `sender` to `receiver` in this incarnation.
  Key key_between(int sender, int receiver) const;
  std::vector<std::uint32_t> numbers(std::uint32_t incarnation) const;
  bool all_answered() const;
  void check_joined(Time now);
  void drop_halted();
  void pump(Time now);
  void move_all(Time now);
  void set_interest();

  EventLoop& loop_;
  const RdmaTransportOptions options_;
  const int rank_;
  std::string why_no_device_;
  RdmaEndpoint* endpoint_ = nullptr;  // the device, if it is in user space
  const std::unique_ptr<RdmaDevice> device_;
  std::vector<std::uint32_t> queue_pairs_;        // in incarnation 0, by rank
  std::vector<Way> ways_;                         // by rank; empty: not connected yet
  std::vector<std::unique_ptr<RdmaPeer>> peers_;  // by rank
  std::vector<Halted> halted_;
  SumNumbers sum_numbers_{};
  std::vector<SumNumbers> sums_;  // by rank; empty: no switch adds
  std::size_t window_packets_ = 0;
  bool devices_ = false;  // some rank uses a device
  std::function<void(Time)> ring_moved_;
  std::unique_ptr<SumRing> sum_ring_, halted_ring_;
  std::uint64_t next_packet_ = 0;        // of this rank's ring connection, when it was halted
  std::vector<std::uint32_t> silenced_;  // numbers of ended and of future queue pairs
  RailStats past_{};                     // of queue pairs that have ended
  std::uint32_t incarnation_ = 0;
  Key key_{};
  Time first_answer_by_ = 0;  // until then the interface may be down
  TransportListener* listener_ = nullptr;
  CallCheck check_{rank_, listener_};
  Time heartbeat_at_ = kNever;
  Time overdue_at_ = kNever;  // when to look for overdue short messages
  std::uint32_t interest_ = 0;
  bool pumping_ = false;
  bool closing_ = false;  // goodbyes wait until the ring is idle
  bool running_ = false;  // false before `connect` and after `halt`
  bool joined_ = false;
  bool failed_ = false;
};

}  // namespace railweave
