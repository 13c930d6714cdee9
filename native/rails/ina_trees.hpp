// SPDX-License-Identifier: Apache-2.0
// Trees of an in-network rail that one thread serves. Each tree has an ina::Endpoint and a spread::Spreader.
// All trees share one UDP socket.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <optional>
#include <span>
#include <string>
#include <variant>
#include <vector>

#include "core/failure.hpp"
#include "core/secret.hpp"
#include "ina/endpoint.hpp"
#include "loop/event_loop.hpp"
#include "rails/datagram_socket.hpp"
#include "rails/rail.hpp"
#include "rails/socket.hpp"
#include "spread/spreader.hpp"

namespace railweave {

/// The controller's description of one tree.
struct InaGroup {
  std::uint16_t group;
  std::string virtual_address;
  std::uint8_t child;
  std::uint32_t slots;
  std::uint32_t lanes;
  int rank;
  int world_size;
};

/// The secret that authenticates the packets of these trees' ranks.
struct InaProof {
  Secret secret;
  std::uint64_t place;       // number of the trees' rail or rack, unique in the job
  Duration redo_within = 0;  // as in ina::EndpointOptions
};

struct InaTreesOptions {
  std::uint64_t rate_bps;         // of the link; 0: unshaped
  std::uint64_t spread_rate_bps;  // share of one tree
  int roots;                      // ranks that multicast at once in an allgather; 0: all
  ina::WindowOptions window;
  std::optional<Secret> secret{};  // nothing: packets are not authenticated
  std::uint64_t place = 0;
  Duration redo_within = 0;    // as in ina::EndpointOptions
  std::size_t first_tree = 0;  // these are the rail's trees `first_tree`, `first_tree` + `step`, …
  std::size_t step = 1;

  /// A tree's number in the job, the same on all ranks. The tree's keys are derived from it.
  std::uint64_t number(std::size_t tree) const { return place << 16 | (first_tree + tree * step); }
};

/// A datagram for another thread's tree. The cause is that the kernel merges datagrams of a peer's socket.
struct Stray {
  std::vector<std::byte> datagram;
};

/// The argument `tree` is an index into `groups`.
class InaTrees final : public Timed {
 public:
  using Event = std::variant<ina::SliceDone, Stall, Failure, Stray>;

  /// `handler` gets the socket's events from `loop` and passes them to `on_ready`. Throws std::runtime_error
  /// or std::invalid_argument that names the error.
  InaTrees(EventLoop& loop, ReadyHandler& handler, DatagramSocket& socket, const InaTreesOptions& options,
           const std::vector<InaGroup>& groups, const std::vector<SocketAddress>& members);
  ~InaTrees() override;

  void start(std::size_t tree, const Slice& part) { trees_[tree].endpoint.start(part); }
  /// Sends all packets that may be sent. Call it after `start`.
  void flush(Time now);
  void on_ready(std::uint32_t events, Time now);
  /// Receives a datagram that was another thread's Stray.
  void take(Bytes datagram, Time now);
  Time deadline() const override;
  void expire(Time now) override;
  /// Call it after each of the functions above.
  std::optional<Event> poll();

  std::uint64_t pause(std::size_t tree, Time now);
  void resume(std::size_t tree, const InaGroup& group, std::uint64_t resume_from, Time now);
  void abort();
  void halt();
  void restart(const std::vector<std::uint64_t>& bases, Time now);
  /// Opens the socket again if another interface now has the name of the socket's interface.
  void follow_interface();

  std::uint64_t next_chunk(std::size_t tree) const { return trees_[tree].endpoint.next_chunk(); }
  void add_to(RailStats& stats) const;
  std::uint64_t progress() const;
  GroupStats group_stats(std::size_t tree) const;

 private:
  /// One tree and its unsent packets. Endpoint and spreader own the packets' bytes.
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

  void connect();
  void receive(Bytes datagram, Time now, bool stray = false);
  void keep_stray(Bytes datagram);
  void start_spreads(Tree& tree, Time now);
  std::size_t push(std::span<const Bytes> datagrams, std::size_t remote, bool urgent = false);
  void push_unsent(std::size_t tree);
  bool fill_spread(Tree& tree, Time now);
  void push_spread(std::size_t tree);
  void insist(Time now);
  void count(Bytes datagram);

  EventLoop& loop_;
  ReadyHandler& handler_;
  DatagramSocket& socket_;
  std::deque<Tree> trees_;
  std::vector<SocketAddress> members_;
  std::uint32_t lanes_;
  std::size_t code_bytes_;  // length of a SPREAD's code
  bool blocked_ = false;    // the socket is full, and waits for EPOLLOUT
  bool halted_ = false;
  bool yields_;             // lets other traffic pass
  Time insists_until_ = 0;  // until then it does not
  SentBytes sent_;
  std::deque<Stray> strays_;
};

}  // namespace railweave
