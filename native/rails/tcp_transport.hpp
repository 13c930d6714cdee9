// SPDX-License-Identifier: Apache-2.0
// Transport over TCP: one connection per pair of neighbours, all on one interface.
#pragma once

#include <algorithm>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "collectives/call_check.hpp"
#include "collectives/transport.hpp"
#include "core/secret.hpp"
#include "loop/event_loop.hpp"
#include "rails/socket.hpp"
#include "rails/tcp_connection.hpp"
#include "rails/tcp_frame.hpp"
#include "rails/tcp_handshake.hpp"

namespace railweave {

struct TcpTransportOptions {
  LocalInterface local;
  std::uint16_t port = 0;  // to listen on; 0: any free one
  Liveness liveness = {};
  Duration hello_timeout = 5 * kSecond;  // then a connection without a hello or proof is closed
};

/// Listens from the start. A rank's peers are only the ranks with which the algorithms exchange messages
/// (`neighbours`). The rank dials the lower peers and waits for the higher peers. If a peer goes, kSilent
/// names it, and all connections are unusable until they are halted and restarted.
///
/// A connection is closed if no member that may dial has its address, or if it does not prove its rank. Each
/// member address has separate places for connections without a hello. If they are full, the oldest
/// connection is closed. So strangers cannot keep a member out. Closed connections count as malformed.
///
/// Ranks need not restart at the same time. A peer that is ahead is parked until this rank reaches the peer's
/// incarnation. A peer that is behind is refused and tries again. A failed dial is repeated until `abort` or
/// `halt`: the owner decides how long it waits.
class TcpTransport final : public Transport, private TransportListener, private ReadyHandler {
 public:
  TcpTransport(EventLoop& loop, const TcpTransportOptions& options);
  ~TcpTransport() override;

  std::uint16_t port() const { return port_; }
  /// Sets the members: the listening sockets of all ranks, in order. The own entry is ignored. Dials nobody:
  /// `restart` does this, with incarnations from 1. Call it once.
  void introduce(const Key& key, int rank, const std::vector<SocketAddress>& members);
  /// Calls `introduce`, and joins the members as incarnation 0.
  void connect(const Key& key, int rank, const std::vector<SocketAddress>& members, Time now);
  /// Adds peers to the neighbours. Call it before `introduce`.
  void add_peers(std::vector<int> ranks) { extra_peers_ = std::move(ranks); }
  std::vector<int> missing() const;  // peers without a connection
  /// Why the last dial failed; empty if none did.
  const std::string& last_refusal() const { return last_refusal_; }

  std::string_view kind() const override { return "tcp"; }
  int world_size() const override { return static_cast<int>(members_.size()); }
  int rank() const override { return rank_; }
  void set_listener(TransportListener* listener) override { listener_ = listener; }
  void begin(const MessageLabel& label, Time now) override;
  void skip_call(Time now) override;
  bool heard_recently(int peer, Time now) const override;
  void post_send(int peer, Bytes data, Time now) override;
  void post_receive(int peer, MutableBytes into, Time now) override;
  /// Never too late. May be too early after traffic, which postpones heartbeats.
  Time deadline() const override { return deadline_; }
  void expire(Time now) override;
  void announce(const Failure& failure, Time now) override;
  void abort() override;
  void halt(Time now) override;
  void restart(std::uint32_t incarnation, Time now) override;
  bool ready() const override { return joined_; }
  void close(Time now) override;
  bool closed() const override;
  RailStats stats() const override;

 private:
  void sent(int peer, Time now) override { listener_->sent(peer, now); }
  void received(int peer, Time now) override { listener_->received(peer, now); }
  void left(int peer, Time now) override { listener_->left(peer, now); }
  void failed(const Failure& failure, Time now) override;
  void on_ready(std::uint32_t events, Time now) override;
  friend TcpHandshake;
  void handshake_ready(TcpHandshake& handshake, std::uint32_t events, Time now);

  /// The next dial to an unreachable peer. The pauses between dials grow.
  struct Redial {
    Time at = kNever;
    Duration pause;
    std::uint64_t dials = 0;
  };
  /// A peer in an incarnation that this rank has not reached yet.
  struct Parked {
    Descriptor socket;
    Hello hello;
  };

  template <typename Action>
  void for_each_connection(const Action& action) const;
  Time next_deadline() const;
  void bring_forward(Time deadline) { deadline_ = std::min(deadline_, deadline); }
  void follow_interface();
  void join(std::uint32_t incarnation, Time now);
  void dial_peer(int peer, Time now);
  void try_again(int peer, const std::string& message, Time now);
  TcpHandshake& add_handshake(Descriptor socket, int peer, std::uint32_t events, Time deadline,
                              std::uint32_t from = 0);
  Descriptor remove_handshake(TcpHandshake& handshake);
  void greet(TcpHandshake& handshake, Time now);
  void make_room(std::uint32_t from, Time now);
  void refuse(TcpHandshake& handshake, bool stranger, Time now);
  void take_answer(TcpHandshake& handshake, Time now);
  void take_hello(TcpHandshake& handshake, Time now);
  void answer(Descriptor socket, const Hello& hello, Time now);
  void take_proof(TcpHandshake& handshake, Time now);
  Hello hello_to(int peer, std::uint64_t number) const;
  void adopt(int peer, Descriptor socket, const Hello& dialled, const Hello& answer, Time now);
  bool patient() const { return incarnation_ > 0; }
  std::string name_of(int peer) const;

  EventLoop& loop_;
  const TcpTransportOptions options_;
  unsigned interface_;  // index of the interface to which `listening_` is bound
  Descriptor listening_;
  const std::uint16_t port_;
  TransportListener* listener_ = nullptr;
  Key key_{};
  int rank_ = 0;
  CallCheck check_{rank_, listener_};
  std::uint32_t incarnation_ = 0;
  std::vector<SocketAddress> members_;             // empty before `introduce`
  std::map<std::uint32_t, std::size_t> dialling_;  // number of ranks that may dial from an address
  std::vector<int> extra_peers_;
  std::vector<int> peers_;  // in order
  std::vector<std::unique_ptr<TcpHandshake>> handshakes_;
  std::vector<Redial> redials_;             // by rank
  std::vector<std::uint64_t> heard_dials_;  // by rank: number of the newest dial
  std::string last_refusal_{};
  std::vector<std::optional<Parked>> parked_;                // by rank
  std::vector<std::unique_ptr<TcpConnection>> connections_;  // by rank
  std::vector<std::unique_ptr<TcpConnection>> halted_;       // kept, because one may be the caller of `halt`
  RailStats past_{};                                         // of connections that have ended
  std::uint64_t strangers_ = 0;
  Time accept_again_at_ = kNever;
  Time deadline_ = kNever;
  bool running_ = false;  // from `connect` or `restart` until `halt`
  bool joined_ = false;
  bool failed_ = false;
};

}  // namespace railweave
