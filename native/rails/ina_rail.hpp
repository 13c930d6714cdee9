// SPDX-License-Identifier: Apache-2.0
// The in-network rail: its trees, how slices are cut among them, and the connections beside them.
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

/// CPUs for threads that serve trees. As many as there are trees have one each; without a second CPU or tree
/// there are none.
struct InaWorkers {
  std::vector<int> cpus{};
  Duration spin = 0;  // before they sleep
};

/// Opened in two steps: the constructor binds the sockets, so that their port can be told to the controller;
/// `attach` follows the controller's answer, with this rail's sockets of all ranks, in order: without them
/// nothing is multicast. Both throw std::runtime_error or std::invalid_argument that names what is wrong. A
/// slice is cut contiguously among the trees, by whole chunks.
///
/// The loop's thread serves all trees, or workers do. Workers alone touch the sockets and machines of their
/// trees. All other work (slices, reports, ends and moves) stays with the loop's thread.
///
/// On a mixed fabric the rail is a ring of racks and single ranks: this rank's rack, if it is in one, is the
/// only tree, and the ring's messages go over the control connections. Racks cannot help with other
/// collectives, products and other types. The hosts carry these over the control connections of all ranks.
///
/// The switch tells its group that marks differ. It does not know which calls differ, and cannot tell that a
/// rank has died. The control connections use the same plane. They carry the reason why a rank gives up, and
/// show when a rank goes. After a mismatch the ranks show each other their labels there, so that each rank
/// reports both calls.
class InaRail final : public RingRail, private ReadyHandler {
 public:
  /// On the loop's thread, as everything here.
  InaRail(EventLoop& loop, const InaRailOptions& options, RailListener& listener);

  /// The port of UDP, to which the switch sends results, and of TCP, where the control connections come in.
  std::uint16_t port() const { return sockets_[0].port(); }
  TcpTransport& control() { return control_; }
  /// The trees in the order that all ranks share, with the same lanes. `roots`: how many ranks multicast at
  /// once in an allgather; 0: all. Without `proof` packets prove nothing.
  void attach(const std::vector<InaGroup>& groups, const std::vector<SocketAddress>& members = {},
              int roots = 0, const InaWorkers& workers = {}, const std::optional<InaProof>& proof = {});
  /// The ranks form this ring. Chunks have `lanes` lanes on all ranks. Before the control connections are
  /// made and the first slice; the rack is attached later if there is one.
  void compose(MemberRing ring, std::uint32_t lanes);

  /// From now on, packets of this rail let the rest of the plane's traffic pass, unless that leaves nothing
  /// for the rail. Before `attach`.
  void yield() { sockets_[0].set_lower_effort(true); }

  /// Stops the tree of `group` until `resume`; its position (ina::Endpoint). May be repeated. Throws
  /// std::invalid_argument for a group that this rail has not.
  std::uint64_t pause(std::uint16_t group, Time now);
  /// The tree of `old_group` goes on as `group` from chunk `resume_from`. Throws as ina::Endpoint::resume.
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
  /// The same numbers on all ranks.
  std::vector<std::uint64_t> do_next_chunks() const override;
  RailStats do_stats() const override;
  std::uint64_t do_progress() const override;

  // Trees are dealt to workers in turn: so many parts, which one has a tree, and under which number there.
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
  std::unique_ptr<InaTrees> own_;       // all trees, without workers
  std::vector<std::unique_ptr<InaWorker>> workers_;
  std::vector<Place> places_;  // by tree
  std::uint32_t data_lanes_ = 0;
  std::deque<Progress> slices_;  // of the trees
  Time busy_since_ = 0;
  RailStats stats_;

  std::optional<MemberRing> ring_;
  ina::ComposedOptions composed_options_;
  ina::RingCounts counts_;
  ina::ComposedAllReduce* composed_ = nullptr;  // the call whose slices the trees have

  int left_ = -1;              // a peer that has said goodbye
  Time grace_until_ = kNever;  // results may still come
  std::uint64_t progress_at_grace_ = 0;
  Time show_until_ = kNever;  // ranks show each other their labels
  std::array<std::byte, 1> in_{}, out_{};
};

}  // namespace railweave
