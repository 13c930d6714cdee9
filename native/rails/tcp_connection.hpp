// SPDX-License-Identifier: Apache-2.0
// One peer's stream of frames: messages leave from where they lie and arrive where they belong.
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

/// A connection after its handshake. It reports to `listener` as a transport would; a failure once.
class TcpConnection final : public ReadyHandler {
 public:
  /// `own_key` and `key`: of the codes of this rank's frames and of the peer's.
  TcpConnection(EventLoop& loop, const CallCheck& check, int peer, std::string name, Descriptor socket,
                TransportListener& listener, const Liveness& liveness, const Key& own_key, const Key& key);
  ~TcpConnection() override;

  /// This rank has come to another call.
  void check_waiting(Time now);
  void post_send(Bytes data, Time now);
  void post_receive(MutableBytes into, Time now);
  void announce(const Failure& failure, Time now);
  void abort();
  /// Ends at once and without a word: nothing is reported or touched any more.
  void halt();
  void close(Time now);
  bool closed() const { return dead_ || (sent_goodbye_ && out_.empty() && peer_left_); }
  void add_counts(RailStats& stats) const;

  /// When a sign of life is due, or the lack of one.
  Time deadline() const;
  void expire(Time now);
  bool heard_recently(Time now) const;

  void on_ready(std::uint32_t events, Time now) override;

 private:
  struct Outgoing {
    FrameType type;
    FrameHeaderBytes header;
    Bytes data;
    bool completes;                // tell the listener when it has left
    std::vector<std::byte> owned;  // what `data` shows, if it is nobody else's
    std::size_t offset = 0;        // bytes of header and data that have left
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
  Time heard_at_;  // bytes have come
  Time spoke_at_;  // bytes have left

  StreamCodes codes_;  // of the frames in `out_`
  std::deque<Outgoing> out_;
  SentBytes sent_{};           // what the socket has taken
  std::uint64_t written_ = 0;  // bytes that the socket has taken
  bool flushing_ = false;
  bool blocked_ = false;  // the socket takes no more
  bool sent_goodbye_ = false;

  std::deque<Receive> posted_;
  TcpReader reader_;
  bool receiving_ = false;
  Time turn_ = 0;  // of the loop, in which so many bytes were read
  std::size_t read_in_turn_ = 0;
  bool drained_ = false;  // the socket was empty when it was read last, and there has been no event since
  std::optional<MessageLabel> parked_;  // of a message that waits for its receive to be posted
  bool paused_ = false;                 // and more has come behind it

  bool watched_ = true;
  std::uint32_t interest_ = EPOLLIN;
  bool aborted_ = false;    // what arrives now is thrown away
  bool peer_left_ = false;  // it has said goodbye
  bool dead_ = false;
};

}  // namespace railweave
