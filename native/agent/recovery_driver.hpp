// SPDX-License-Identifier: Apache-2.0
// Connects the recovery machine to control sockets, link events and the rails that it halts and restarts.
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

/// How long a rail may take for its piece of a call after all other pieces are done. The time is for a
/// machine that runs processes without delay.
Duration patience(const Calls::Laggard& laggard);
/// How long the oldest piece of a channel may take after all ranks have made the call. kNever if the call has
/// other pieces for comparison, or if the expected time is unknown.
Duration patience(const Calls::Front& front);

/// Created before the rails are connected, because ranks exchange its ports. It works from `enable` on.
class RecoveryDriver final : public Timed {
 public:
  RecoveryDriver(EventLoop& loop, Agent& agent);
  ~RecoveryDriver() override;

  /// Opens a rail's control socket and the listening socket of its repair channel. Call it in order of the
  /// rails. Returns the port of both sockets.
  std::uint16_t open(std::size_t rail, const LocalInterface& at, std::uint64_t rate_bps);
  /// The agent keeps ownership of `rails`. `members`: by rail and rank.
  void enable(std::vector<Rail*> rails, const Secret& secret,
              const std::vector<std::vector<SocketAddress>>& members, Duration peer_timeout, Time now);
  bool enabled() const { return recovery_.has_value(); }
  /// A rail's problem, to this rank's knowledge; empty: no problem.
  std::string suspicion(std::size_t rail, Time now) const {
    return enabled() ? recovery_->suspicion(rail, now) : std::string();
  }

  /// Whether the rail's main channel takes slices.
  bool in_use(std::size_t rail) const { return !enabled() || mains_[rail].state == MainState::kInUse; }
  Rail& repair(std::size_t rail) { return *repairs_[rail].rail; }
  /// Adds the bytes that recovery sent on a rail's interface, and counts bytes of trials as recovery.
  void add_counts(std::size_t rail, RailStats& stats);
  /// Whether repair channels take slices.
  bool repairs_open() const { return repairs_open_; }

  // Reports of the agent. They only change state; `pump` acts on them.
  void completed(std::uint32_t op_index) { completed_ = op_index; }  // goes out with the next heartbeat
  /// Returns true if the slice belonged to a trial and not to a call.
  bool trial_done(std::size_t rail, std::uint64_t id, Time now);
  void rail_failed(ChannelId channel, const Failure& failure, Time now);
  void stalled(std::size_t rail, const Stall& stall, Time now);
  void set_obstacle(std::size_t rail, const std::string& reason, Time now);
  void leave(Time now);
  /// Ends all work and all sending, because the communicator has ended.
  void end();

  /// Carries out the machine's events and sends its datagrams. Called after every turn of the loop, outside
  /// of handlers.
  void pump(Time now);

  Time deadline() const override;
  void expire(Time now) override;

 private:
  enum class MainState { kInUse, kHalted, kTrial, kReady };
  // A channel's progress at its last change. Times are values of Recovery::ran.
  struct Standing {
    std::uint64_t id = 0;
    std::uint64_t progress = 0;
    Duration since = 0;
    Duration begun = 0;  // start of the wait for this piece, which all ranks have made
  };
  // The call that waits for this rail alone. `since` is a value of Recovery::ran.
  struct Lag {
    std::uint32_t op_index;
    Duration since;
  };
  struct Main {
    Rail* rail;
    std::string interface;
    MainState state = MainState::kInUse;
    std::uint32_t incarnation = 0;
    std::string obstacle{};  // reported by the owner
    std::string carrier{};   // from link events
    Standing standing{};
    std::optional<Lag> lag{};
    std::optional<RailStats> trial_from{};  // the rail's counts at the start of the running trial
    SentBytes trials{};                     // bytes sent in trials, in the rail's own categories
    SentBytes agreement{};                  // datagrams of the control socket
    std::uint64_t agreement_packets = 0;
    std::uint64_t refused = 0;  // number of datagrams
    std::uint64_t replayed = 0;
  };
  struct Broken {
    std::string reason{};
    Time suspect_at = kNever;  // time at which the rail becomes suspect
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
  std::uint32_t all_submitted_ = 0;  // all ranks have submitted the calls before this one
  bool changed_ = false;             // the machine may have new events or datagrams
  bool ended_ = false;
};

}  // namespace railweave
