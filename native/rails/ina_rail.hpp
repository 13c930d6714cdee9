// SPDX-License-Identifier: Apache-2.0
// The in-network rail: an ina::Endpoint and a spread::Spreader per tree, on one UDP socket.
#pragma once

#include <cstdint>
#include <deque>
#include <span>
#include <string>
#include <vector>

#include "ina/endpoint.hpp"
#include "loop/event_loop.hpp"
#include "rails/datagram_socket.hpp"
#include "rails/rail.hpp"
#include "rails/socket.hpp"
#include "spread/spreader.hpp"

namespace railweave {

struct InaRailOptions {
  std::string address;         // this host's, on the rail's plane
  std::string interface = {};  // empty: the route decides
  std::uint64_t rate_bps = 0;  // of the link; 0: unshaped
  ina::WindowOptions window = {};
};

/// What the controller says of one tree.
struct InaGroup {
  std::uint16_t group;
  std::string virtual_address;
  std::uint8_t child;
  std::uint32_t slots;
  std::uint32_t lanes;
  int rank;
  int world_size;
};

/// Opened in two steps: the constructor binds the socket, so that its port can be told to the controller;
/// `attach` follows the controller's answer, with this rail's sockets of all ranks, in order: without them
/// nothing is multicast. Both throw std::runtime_error or std::invalid_argument that names what is wrong. A
/// slice is cut contiguously among the trees, by whole chunks.
class InaRail final : public Rail, private ReadyHandler {
 public:
  /// On the loop's thread, as everything here.
  InaRail(EventLoop& loop, const InaRailOptions& options, RailListener& listener);
  ~InaRail() override;

  /// The UDP port to which the switch sends results.
  std::uint16_t port() const { return socket_.port(); }
  /// The trees in the order that all ranks share, with the same lanes. `roots`: how many ranks multicast at
  /// once in an allgather; 0: all.
  void attach(const std::vector<InaGroup>& groups, const std::vector<SocketAddress>& members = {},
              int roots = 0);

  /// What this rail sends lets the rest of the plane's traffic pass.
  void yield() { socket_.set_lower_effort(); }

  /// Stops the tree of `group` until `resume`; its position (ina::Endpoint). May be repeated. Throws
  /// std::invalid_argument for a group that this rail has not.
  std::uint64_t pause(std::uint16_t group, Time now);
  /// The tree of `old_group` goes on as `group` from chunk `resume_from`. Throws as ina::Endpoint::resume.
  void resume(std::uint16_t old_group, const InaGroup& group, std::uint64_t resume_from, Time now);

  std::string_view kind() const override { return "ina"; }
  void start(const Slice& slice, Time now) override;
  Time deadline() const override;
  void expire(Time now) override;
  void abort() override;
  void halt(Time now) override;
  /// Throws std::invalid_argument if there is not one base per tree, or one is below this rank's own next
  /// chunk.
  void restart(const Restart& restart, Time now) override;
  bool ready() const override { return !trees_.empty() && !halted_; }
  std::vector<std::uint64_t> next_chunks() const override;
  RailStats stats() const override;
  std::uint64_t progress() const override;
  std::vector<GroupStats> groups() const override;

 private:
  /// One endpoint, and what it has given to the socket: its packets keep the bytes.
  struct Tree {
    Tree(const ina::EndpointOptions& options, const spread::SpreaderOptions& spread)
        : endpoint(options), spreader(spread) {}
    ina::Endpoint endpoint;
    spread::Spreader spreader;
    std::string virtual_address;
    std::vector<Bytes> unsent;
    std::vector<spread::Packet> unsent_spread;
    std::uint64_t mismatches = 0;
  };
  struct Progress {
    Slice slice;
    std::size_t trees_left;
  };

  void on_ready(std::uint32_t events, Time now) override;
  void follow_interface();
  void receive(Bytes datagram, Time now);
  void start_spreads(Tree& tree, Time now);
  void serve(Time now);
  void flush(Time now);
  std::size_t push(std::span<const Bytes> datagrams, std::size_t remote);
  void push_unsent(std::size_t tree);
  bool fill_spread(Tree& tree, Time now);
  void push_spread(std::size_t tree);
  void count(Bytes datagram);
  void connect();
  std::size_t tree_of(std::uint16_t group) const;
  void report(Time now);
  void part_done(std::uint64_t id, Time now);

  EventLoop& loop_;
  const InaRailOptions options_;
  RailListener& listener_;
  DatagramSocket socket_;
  std::deque<Tree> trees_;
  std::vector<SocketAddress> members_;
  std::uint32_t lanes_ = 0;
  bool blocked_ = false;  // the socket is full: EPOLLOUT is awaited
  bool halted_ = false;
  std::deque<Progress> slices_;
  Time busy_since_ = 0;
  RailStats stats_;
};

}  // namespace railweave
