// SPDX-License-Identifier: Apache-2.0
// The in-network rail: its trees, the split of slices among the trees, and the control connections.
#pragma once

#include <array>
#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "ina/composed.hpp"
#include "loop/event_loop.hpp"
#include "rails/datagram_socket.hpp"
#include "rails/ina_trees.hpp"
#include "rails/ina_worker.hpp"
#include "rails/ring_rail.hpp"
#include "rails/tcp_transport.hpp"

namespace railweave {

struct InaRailOptions {
  std::string address;         // this host's, on the rail's plane
  std::string interface = {};  // empty: the route decides
  std::uint64_t rate_bps = 0;  // of the link; 0: unshaped
  ina::WindowOptions window = {};
};

/// CPUs for threads that serve trees: one thread per CPU, at most one per tree. With fewer than two CPUs or
/// trees there are no threads.
struct InaWorkers {
  std::vector<int> cpus{};
  Duration spin = 0;  // how long the threads poll before they sleep
};

/// A rail is opened in two steps. The constructor binds the sockets, so that the controller can learn the
/// port. `attach` takes the controller's answer and this rail's sockets of all ranks, in order. Without these
/// sockets nothing is multicast. Both throw std::runtime_error or std::invalid_argument that names the error.
/// Each tree gets a contiguous part of a slice, in whole chunks.
///
/// Either the loop's thread or workers serve the trees. Only a worker's own thread touches the sockets and
/// machines of its trees. All other work (slices, reports, ends and moves) stays with the loop's thread.
///
/// On a mixed fabric the rail is a ring of racks and single ranks. The only tree is this rank's rack, if the
/// rank has one. The ring's messages use the control connections. Racks cannot help with other collectives,
/// products and other types. The hosts carry these over the control connections of all ranks.
///
/// The switch tells its group that marks differ. It does not know which calls differ, or whether a rank has
/// died. The control connections use the same plane. They carry the reason why a rank gives up, and show when
/// a rank goes. After a mismatch the ranks exchange their labels there, so that each rank reports both calls.
class InaRail final : public RingRail, private ReadyHandler {
 public:
  /// All functions must be called on the loop's thread.
  InaRail(EventLoop& loop, const InaRailOptions& options, RailListener& listener);

  /// The port for the switch's results over UDP and for incoming control connections over TCP.
  std::uint16_t port() const { return sockets_[0].port(); }
  TcpTransport& control() { return control_; }
  /// `groups`: the trees, in the same order on all ranks, with the same lanes. `roots`: number of ranks that
  /// multicast at once in an allgather; 0: all. Without `proof` packets are not authenticated.
  void attach(const std::vector<InaGroup>& groups, const std::vector<SocketAddress>& members = {},
              int roots = 0, const InaWorkers& workers = {}, const std::optional<InaProof>& proof = {});
  /// Makes the ranks form this ring. Chunks have `lanes` lanes on all ranks. Call it before the control
  /// connections are made and before the first slice. A rack is attached later.
  void compose(MemberRing ring, std::uint32_t lanes);

  /// Gives this rail's packets a lower priority than the plane's other traffic, unless the rail then gets no
  /// results. Call it before `attach`.
  void yield() { sockets_[0].set_lower_effort(true); }

  /// Stops the tree of `group` until `resume`. Returns its position (ina::Endpoint). May be repeated. Throws
  /// std::invalid_argument if this rail has no such group.
  std::uint64_t pause(std::uint16_t group, Time now);
  /// Continues the tree of `old_group` as `group` from chunk `resume_from`. Throws as ina::Endpoint::resume.
  void resume(std::uint16_t old_group, const InaGroup& group, std::uint64_t resume_from, Time now);

  std::string_view kind() const override { return "ina"; }
  std::vector<GroupStats> groups() const override;

 private:
  struct Opened {
    DatagramSocket socket;
    std::unique_ptr<TcpTransport> control;
  };
  /// A tree's group, now and before its last move.
  struct Place {
    std::uint16_t group;
    std::optional<std::uint16_t> left{};
  };
  struct Progress {
    Slice slice;
    std::size_t trees_left;
  };

  InaRail(EventLoop& loop, const InaRailOptions& options, RailListener& listener, Opened opened);
  static Opened open(EventLoop& loop, const InaRailOptions& options);

  bool do_can_start() const override { return !ring_ || RingRail::do_can_start(); }
  void do_start(const Slice& slice, Time now) override;
  Time do_deadline() const override;
  void do_expire(Time now) override;
  void do_abort() override;
  void do_halt(Time now) override;
  /// Throws std::invalid_argument if there is not one base per tree, or one is below this rank's own next
  /// chunk.
  void do_restart(const Restart& restart, Time now) override;
  bool do_ready() const override { return (!in_trees() || !places_.empty()) && RingRail::do_ready(); }
  /// Returns the same number of entries on all ranks.
  std::vector<std::uint64_t> do_next_chunks() const override;
  RailStats do_stats() const override;
  std::uint64_t do_progress() const override;

  // Trees are distributed round-robin to parts: the workers, or the loop's thread as the only part.
  std::size_t parts() const { return own_ ? 1 : workers_.size(); }
  std::size_t part_of(std::size_t tree) const { return tree % parts(); }
  std::size_t within(std::size_t tree) const { return tree / parts(); }
  void run(std::size_t part, Time now, const InaWorker::Task& task) const;
  void steer_by_group() const;

  void on_ready(std::uint32_t events, Time now) override;
  std::size_t tree_of(std::uint16_t group) const;
  void start_in_trees(const Slice& slice, Time now);
  void halt_trees(Time now);
  void restart_trees(const std::vector<std::uint64_t>& bases, Time now);
  void pass_on(Stray stray);
  void report(Time now);
  void part_done(std::uint64_t id, Time now);
  void trees_done(const Slice& slice, Time now);

  bool in_trees() const { return !ring_ || ring_->rack().size() > 1; }
  std::unique_ptr<Algorithm> choose(Transport& transport, const Slice& slice);

  // In ina_rail_ends.cpp.
  void sent(int peer, Time now) override;
  void received(int peer, Time now) override;
  void left(int peer, Time now) override;
  void failed(const Failure& failure, Time now) override;
  void trees_failed(const Failure& failure, Time now);
  void begin_grace(Time now);
  void end_grace(Time now);
  void show_label(const MessageLabel& own, Time now);
  bool showing_label() const { return show_until_ != kNever; }
  void blame_switch(Time now);
  void stop_waiting() { show_until_ = grace_until_ = kNever; }

  EventLoop& loop_;
  const InaRailOptions options_;
  TcpTransport& control_;
  std::deque<DatagramSocket> sockets_;  // by part
  std::unique_ptr<InaTrees> own_;       // all trees, if there are no workers
  std::vector<std::unique_ptr<InaWorker>> workers_;
  std::vector<Place> places_;  // by tree
  std::uint32_t data_lanes_ = 0;
  std::deque<Progress> slices_;  // in the trees
  Time busy_since_ = 0;
  RailStats stats_;

  std::optional<MemberRing> ring_;
  ina::ComposedOptions composed_options_;
  ina::RingCounts counts_;
  ina::ComposedAllReduce* composed_ = nullptr;  // the call whose slices are in the trees

  int left_ = -1;              // a peer that has said goodbye
  Time grace_until_ = kNever;  // until then results may still come
  std::uint64_t progress_at_grace_ = 0;
  Time show_until_ = kNever;  // until then ranks exchange labels
  std::array<std::byte, 1> in_{}, out_{};
};

}  // namespace railweave
