// SPDX-License-Identifier: Apache-2.0
// The in-network rail: its trees, and how slices are cut among them.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "loop/event_loop.hpp"
#include "rails/datagram_socket.hpp"
#include "rails/ina_trees.hpp"
#include "rails/ina_worker.hpp"
#include "rails/rail.hpp"

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

/// Opened in two steps: the constructor binds the socket, so that its port can be told to the controller;
/// `attach` follows the controller's answer, with this rail's sockets of all ranks, in order: without them
/// nothing is multicast. Both throw std::runtime_error or std::invalid_argument that names what is wrong. A
/// slice is cut contiguously among the trees, by whole chunks.
///
/// The loop's thread serves all trees, or workers do: then they alone touch the sockets and machines of their
/// trees, and everything else (slices, what the listener hears, ends and moves) stays with the loop's thread.
class InaRail final : public Rail, private ReadyHandler {
 public:
  /// On the loop's thread, as everything here.
  InaRail(EventLoop& loop, const InaRailOptions& options, RailListener& listener);

  /// The UDP port to which the switch sends results.
  std::uint16_t port() const { return sockets_[0].port(); }
  /// The trees in the order that all ranks share, with the same lanes. `roots`: how many ranks multicast at
  /// once in an allgather; 0: all. Without `proof` packets prove nothing.
  void attach(const std::vector<InaGroup>& groups, const std::vector<SocketAddress>& members = {},
              int roots = 0, const InaWorkers& workers = {}, const std::optional<InaProof>& proof = {});

  /// What this rail sends lets the rest of the plane's traffic pass, unless that leaves it nothing. Before
  /// `attach`.
  void yield() { sockets_[0].set_lower_effort(true); }

  /// Stops the tree of `group` until `resume`; its position (ina::Endpoint). May be repeated. Throws
  /// std::invalid_argument for a group that this rail has not.
  std::uint64_t pause(std::uint16_t group, Time now);
  /// The tree of `old_group` goes on as `group` from chunk `resume_from`. Throws as ina::Endpoint::resume.
  void resume(std::uint16_t old_group, const InaGroup& group, std::uint64_t resume_from, Time now);

  std::string_view kind() const override { return "ina"; }
  void start(const Slice& slice, Time now) override;
  Time deadline() const override { return own_ ? own_->deadline() : kNever; }
  void expire(Time now) override;
  void abort() override;
  void halt(Time now) override;
  /// Throws std::invalid_argument if there is not one base per tree, or one is below this rank's own next
  /// chunk.
  void restart(const Restart& restart, Time now) override;
  bool ready() const override { return !places_.empty() && !halted_; }
  std::vector<std::uint64_t> next_chunks() const override;
  RailStats stats() const override;
  std::uint64_t progress() const override;
  std::vector<GroupStats> groups() const override;

 private:
  /// A tree's group, now and before its last move.
  struct Place {
    std::uint16_t group;
    std::optional<std::uint16_t> left{};
  };
  struct Progress {
    Slice slice;
    std::size_t trees_left;
  };

  // Trees are dealt to workers in turn: so many parts, which one has a tree, and under which number there.
  std::size_t parts() const { return own_ ? 1 : workers_.size(); }
  std::size_t part_of(std::size_t tree) const { return tree % parts(); }
  std::size_t within(std::size_t tree) const { return tree / parts(); }
  void run(std::size_t part, Time now, const InaWorker::Task& task) const;
  void deal() const;

  void on_ready(std::uint32_t events, Time now) override;
  std::size_t tree_of(std::uint16_t group) const;
  void pass_on(Stray stray);
  void report(Time now);
  void part_done(std::uint64_t id, Time now);

  EventLoop& loop_;
  const InaRailOptions options_;
  RailListener& listener_;
  std::deque<DatagramSocket> sockets_;  // by part
  std::unique_ptr<InaTrees> own_;       // all trees, without workers
  std::vector<std::unique_ptr<InaWorker>> workers_;
  std::vector<Place> places_;  // by tree
  std::uint32_t data_lanes_ = 0;
  bool halted_ = false;
  std::deque<Progress> slices_;
  Time busy_since_ = 0;
  RailStats stats_;
};

}  // namespace railweave
