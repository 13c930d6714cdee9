// SPDX-License-Identifier: Apache-2.0
// Joins the recovery machine to the world: control sockets, carrier, the rails that it halts and restarts.
#pragma once

#include <array>
#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "agent/calls.hpp"
#include "agent/channel_listener.hpp"
#include "agent/trial.hpp"
#include "core/secret.hpp"
#include "loop/event_loop.hpp"
#include "rails/carrier_watch.hpp"
#include "rails/control_socket.hpp"
#include "rails/rail.hpp"
#include "rails/ring_rail.hpp"
#include "rails/tcp_transport.hpp"
#include "recovery/recovery.hpp"

namespace railweave {

class Agent;

/// How long a rail may take for its piece of a call after all other pieces are done, where processes run in
/// time.
Duration patience(const Calls::Laggard& laggard);
/// How long the first piece of a channel may take that all ranks have made; kNever if the other pieces of its
/// call are to show it, or nothing was expected.
Duration patience(const Calls::Front& front);

/// Made before the rails are connected, so that its ports can be offered; runs from `enable` on.
class RecoveryDriver final : public Timed {
 public:
  RecoveryDriver(EventLoop& loop, Agent& agent);
  ~RecoveryDriver() override;

  /// Opens a rail's control socket, and the repair channel's listening one beside it; rail by rail. Their
  /// port.
  std::uint16_t open(std::size_t rail, const LocalInterface& at, std::uint64_t rate_bps);
  /// `rails` stay the agent's. `members`: by rail and rank.
  void enable(std::vector<Rail*> rails, const Secret& secret,
              const std::vector<std::vector<SocketAddress>>& members, Duration peer_timeout, Time now);
  bool enabled() const { return recovery_.has_value(); }
  /// What is wrong with a rail, as far as this rank knows.
  std::string suspicion(std::size_t rail, Time now) const {
    return enabled() ? recovery_->suspicion(rail, now) : std::string();
  }

  /// Whether the rail's main channel takes slices.
  bool in_use(std::size_t rail) const { return !enabled() || mains_[rail].state == MainState::kInUse; }
  Rail& repair(std::size_t rail) { return *repairs_[rail].rail; }
  /// Adds what a rail's interface has sent for recovery, and tells the trials of its main channel apart.
  void add_counts(std::size_t rail, RailStats& stats);
  /// Whether repair channels take slices.
  bool repairs_open() const { return repairs_open_; }

  // What the agent reports. Nothing of it acts at once: `pump` does.
  void completed(std::uint32_t op_index) { completed_ = op_index; }  // goes out with the next heartbeat
  /// True if it was no call's slice but a trial's.
  bool trial_done(std::size_t rail, std::uint64_t id, Time now);
  void rail_failed(ChannelId channel, const Failure& failure, Time now);
  void stalled(std::size_t rail, const Stall& stall, Time now);
  void set_obstacle(std::size_t rail, const std::string& reason, Time now);
  void leave(Time now);
  /// The communicator has ended: nothing more is sent or done.
  void end();

  /// After every turn of the loop, outside of all handlers: carries out what the machine wants.
  void pump(Time now);

  Time deadline() const override;
  void expire(Time now) override;

 private:
  enum class MainState { kInUse, kHalted, kTrial, kReady };
  // What a channel was at when it was last seen to move; times by Recovery::ran.
  struct Standing {
    std::uint64_t id = 0;
    std::uint64_t progress = 0;
    Duration since = 0;
    Duration begun = 0;  // when this piece was the first that all ranks had made
  };
  // The call that waits for this rail alone, since when by Recovery::ran.
  struct Lag {
    std::uint32_t op_index;
    Duration since;
  };
  struct Main {
    Rail* rail;
    std::string interface;
    MainState state = MainState::kInUse;
    std::uint32_t incarnation = 0;
    std::string obstacle{};  // as the owner said
    std::string carrier{};   // seen here
    Standing standing{};
    std::optional<Lag> lag{};
    std::optional<RailStats> trial_from{};  // counts when the trial that runs began
    SentBytes trials{};                     // sent in trials, by what the rail took it for
    SentBytes agreement{};                  // datagrams of the control socket
    std::uint64_t agreement_packets = 0;
    std::uint64_t refused = 0;  // datagrams
    std::uint64_t replayed = 0;
  };
  struct Broken {
    std::string reason{};
    Time suspect_at = kNever;  // then the rail is suspected
  };
  struct Repair {
    TcpTransport* transport;
    ChannelListener listener;
    std::unique_ptr<Rail> rail;
    Broken broken;
    Standing standing;
  };

  void received(std::size_t rail, int rank, Bytes datagram, Time now);
  void unreachable(std::size_t rail, int rank, Bytes quoted, Time now);
  void count(std::size_t rail, std::optional<recovery::Refusal> refusal);
  void links_changed(Time now);

  bool next_event(Time now);
  bool transmit(Time now);
  void apply(const recovery::Prepare& prepare, Time now);
  void apply(const recovery::Commit& commit, Time now);
  void apply(const recovery::Restart& restart, Time now);
  void apply(const recovery::Halt& abandon, Time now);
  void apply(const recovery::PeerLost& lost, Time now);
  void apply(const recovery::AllCompleted& completed, Time now);
  void apply(const recovery::AllSubmitted& submitted, Time now);
  void apply(const recovery::RailChanged& change, Time now);

  void halt_main(std::size_t rail, Time now);
  void halt_repairs(Time now);
  void end_trial(Main& main);
  void open_repairs(const recovery::Commit& commit, Time now);
  bool anything_to_repair(const recovery::Commit& commit) const;
  void suspect_laggards(Time now);
  void suspect_broken_repairs(Time now);
  void suspect_stuck(ChannelId channel, const Rail& rail, Standing& standing, Time now);
  void tell_obstacle(std::size_t rail, Time now);

  EventLoop& loop_;
  Agent& agent_;
  std::vector<std::unique_ptr<ControlSocket>> sockets_;  // by rail
  std::deque<Repair> repairs_;
  std::vector<Main> mains_;
  std::vector<Trial> trials_;
  std::optional<CarrierWatch> carrier_;
  std::optional<recovery::Recovery> recovery_;
  recovery::RailSet alive_ = 0;  // as of the last decision
  bool repairing_ = false;       // the last decision left something to repair
  bool repairs_open_ = false;
  std::uint32_t completed_ = 0;
  std::uint32_t all_submitted_ = 0;  // all ranks have, calls before this one
  bool changed_ = false;             // something that the machine has not been asked about since
  bool ended_ = false;
};

}  // namespace railweave
