// SPDX-License-Identifier: Apache-2.0
// One peer's stream of frames. Messages are sent from and received into the callers' buffers.
#pragma once

#include <algorithm>
#include <deque>
#include <optional>
#include <string>
#include <vector>

#include "collectives/call_check.hpp"
#include "collectives/transport.hpp"
#include "loop/event_loop.hpp"
#include "rails/socket.hpp"
#include "rails/tcp_frame.hpp"
#include "rails/tcp_reader.hpp"

namespace railweave {

/// A connection after its handshake. It reports to `listener` as a transport does.
class TcpConnection final : public ReadyHandler {
 public:
  /// `own_key` authenticates this rank's frames, `key` the peer's frames.
  TcpConnection(EventLoop& loop, const CallCheck& check, int peer, std::string name, Descriptor socket,
                TransportListener& listener, const Liveness& liveness, const Key& own_key, const Key& key);
  ~TcpConnection() override;

  /// Checks a parked message again, because this rank has come to another call.
  void check_waiting(Time now);
  void post_send(Bytes data, Time now);
  void post_receive(MutableBytes into, Time now);
  void announce(const Failure& failure, Time now);
  void abort();
  /// Ends the connection at once, without a goodbye. It then makes no reports and uses no buffers.
  void halt();
  void close(Time now);
  bool closed() const { return dead_ || (sent_goodbye_ && out_.empty() && peer_left_); }
  void add_counts(RailStats& stats) const;

  /// When this rank must send a heartbeat, or the peer counts as silent.
  Time deadline() const;
  void expire(Time now);
  bool heard_recently(Time now) const;

  void on_ready(std::uint32_t events, Time now) override;

 private:
  struct Outgoing {
    FrameType type;
    FrameHeaderBytes header;
    Bytes data;
    bool completes;                // tell the listener when the frame is sent
    std::vector<std::byte> owned;  // the bytes of `data`, if the frame owns them
    std::size_t offset = 0;        // bytes of header and data that are sent
    std::size_t size() const { return header.size() + data.size(); }
    std::size_t data_sent() const { return offset - std::min(offset, header.size()); }
  };
  struct Receive {
    MessageLabel label;
    MutableBytes into;
  };

  FrameHeaderBytes header_of(FrameType type, Bytes payload, const MessageLabel& label);
  void enqueue(FrameType type, std::vector<std::byte> payload, Time now, const MessageLabel& label = {});
  void flush(Time now);
  bool send_some(Time now);
  void count(const Outgoing& frame, std::size_t data_before);
  void drop_sends();

  void receive(Time now);
  std::size_t read_some(Time now);
  bool take_events(Time now);
  bool take(const TcpReader::MessageBegins& message, Time now);
  bool take(const TcpReader::MessageEnds&, Time now);
  bool take(const TcpReader::Heartbeat& heartbeat, Time now);
  bool take(const TcpReader::PeerFailed& failed, Time now);
  bool take(const TcpReader::Goodbye&, Time now);
  bool take(const TcpReader::Malformed&, Time now);

  bool sends_heartbeats() const;
  void send_heartbeat(Time now);
  void end_of_stream(Time now);
  void fail_with(int error, Time now);
  void set_interest();
  void fail(FailureKind kind, const std::string& message, Time now);
  void fail_silent(bool by_peer, const std::string& message, Time now);
  void fail(const Failure& failure, Time now);

  EventLoop& loop_;
  const CallCheck& check_;
  const int peer_;
  const std::string name_;  // "rank 2 at 10.1.0.3:40123"
  Descriptor socket_;
  TransportListener& listener_;
  const Liveness liveness_;
  Time heard_at_;  // when bytes arrived last
  Time spoke_at_;  // when bytes were sent last, or a heartbeat was due

  StreamCodes codes_;  // for the frames in `out_`
  std::deque<Outgoing> out_;
  SentBytes sent_{};           // the same bytes as `written_`, by kind
  std::uint64_t written_ = 0;  // bytes that the socket has taken
  bool flushing_ = false;
  bool blocked_ = false;  // the socket's send buffer is full
  bool sent_goodbye_ = false;

  std::deque<Receive> posted_;
  TcpReader reader_;
  bool receiving_ = false;
  Time turn_ = 0;  // the loop's turn in which `read_in_turn_` counts
  std::size_t read_in_turn_ = 0;
  bool drained_ = false;                // the last read emptied the socket, and no event has come since
  std::optional<MessageLabel> parked_;  // label of a message whose receive is not posted yet
  bool paused_ = false;                 // more data have come behind the parked message

  bool watched_ = true;
  std::uint32_t interest_ = EPOLLIN;
  bool aborted_ = false;    // arriving data are discarded
  bool peer_left_ = false;  // the peer has said goodbye
  bool dead_ = false;
};

}  // namespace railweave
