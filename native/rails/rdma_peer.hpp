// SPDX-License-Identifier: Apache-2.0
// Messages to and from one peer over one connection; several are in flight. A short message is a SEND, sent
// as soon as it is posted. At most kShortAhead are ahead of the peer's receives. For a longer message, the
// receiver sends a clearance. The sender answers with an RDMA WRITE with immediate data, straight into place.
//
// If two ranks make different calls, a message may never come, and the waiting rank must learn this. So a
// rank compares labels when it gets a message or a clearance. The receiver of an overdue short message sends
// a clearance too.
#pragma once

#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "collectives/call_check.hpp"
#include "collectives/transport.hpp"
#include "rails/rdma_device.hpp"
#include "rails/rdma_message.hpp"

namespace railweave {

/// Says what the peer did if a connection failed with `status`. The text goes behind the peer's name.
std::string why(roce::Status status);

struct RdmaPeerOptions {
  int rank;
  std::string name;         // "rank 2 at 10.3.0.3"
  std::size_t short_bytes;  // most data sent without a clearance; the same on both ranks
  // Options of the queue pair once the peer has answered.
  int retries;
  Duration max_timeout;
  Key own_key, key;  // for the codes of this rank's control messages, and for the peer's
};

class RdmaPeer {
 public:
  /// Reports to `listener` as a transport would, from inside the calls below. Reports only one failure.
  RdmaPeer(RdmaPeerOptions options, const CallCheck& check, RdmaConnection& connection,
           TransportListener& listener);
  RdmaPeer(const RdmaPeer&) = delete;
  RdmaPeer& operator=(const RdmaPeer&) = delete;

  /// To be called when this rank has come to another call.
  void check_waiting(Time now);
  void post_send(Bytes data, Time now);
  void post_receive(MutableBytes into, Time now);
  /// Handles the completions of the queue pair. Returns false if there were none.
  bool drain(Time now);

  /// Asks the peer's process for a sign of life, unless an answer is awaited anyway.
  void heartbeat();
  /// Asks the peer for the oldest awaited message if it is short and was the oldest at the last call too.
  /// Returns true if the oldest awaited message is short.
  bool clear_overdue();
  /// Asks for the first sign of life. The queue pair repeats this until the peer answers.
  void probe() { post_heartbeat(); }
  bool answered() const { return answered_; }
  /// When `drain` last found new packets; 0: never.
  Time heard_at() const { return heard_at_; }

  /// Releases all buffers. Later writes of the peer are discarded, and nothing completes any more.
  void abort();
  /// The same, and ends the connection at once, without telling the peer.
  void halt();
  void announce(const Failure& failure);
  void close();
  /// True if all is acknowledged, and both have said goodbye or `abort` was called. Also after a fault.
  bool closed() const;

  const RdmaConnection& connection() const { return connection_; }

 private:
  struct Outgoing {
    MessageLabel label;
    Bytes data;
  };
  struct Receive {
    MessageLabel label;
    MutableBytes into;
    std::uint32_t sequence;
    std::optional<std::uint32_t> rkey{};  // set while the peer may write there
  };
  /// A short message that came before its receive.
  struct Early {
    MessageLabel label;
    std::vector<std::byte> data;
  };

  bool is_short(const Outgoing& send) const { return send.data.size() <= options_.short_bytes; }
  bool is_short(const Receive& receive) const { return receive.into.size() <= options_.short_bytes; }
  void clear_receives();
  void clear(Receive& receive);
  void check_peer_is_there(Time now);
  bool needs_peer() const { return receives_.size() > early_.size() || sent_ < sends_.size(); }
  std::uint32_t next_out() const { return first_out_ + static_cast<std::uint32_t>(sent_); }
  void match(Time now);
  void send_short(const Outgoing& send);
  void write(const Outgoing& send, const ClearToSend& clearance);
  bool report_sent(Time now);
  bool agrees(const MessageLabel& own, std::size_t size, const MessageLabel& theirs, std::uint64_t their_size,
              Time now);
  const MessageLabel* waits_here() const;
  void say_goodbye();

  void take(const roce::Completion& completion, Time now);
  void take_control(Bytes received, Time now);
  void take_clearance(const ClearToSend& clearance, Time now);
  void take_short(const ShortMessage& message, Time now);
  bool take_early(Time now);
  void deliver(const MessageLabel& label, Bytes data, Time now);
  bool take_taken(std::uint16_t taken);
  void received(Time now);
  void take_written(const roce::Completion& completion, Time now);
  void note_answer();
  void post_heartbeat();
  void take_failure(const roce::Completion& completion, Time now);

  void send_control(std::vector<std::byte> message, bool quiet = false);
  MutableBytes control_buffer(std::size_t index) const {
    return {control_in_.get() + index * control_size_, control_size_};
  }
  void post_control_buffer(std::size_t index);
  void fail(FailureKind kind, const std::string& message, Time now);
  void fail(const Failure& failure, Time now);

  const RdmaPeerOptions options_;
  const CallCheck& check_;
  RdmaConnection& connection_;
  TransportListener& listener_;

  std::deque<Outgoing> sends_;
  std::size_t sent_ = 0;                                 // of `sends_`: are posted to the connection
  std::uint32_t first_out_ = 0;                          // sequence of the oldest send
  std::uint16_t shorts_out_ = 0, credits_received_ = 0;  // short messages: sent; met by receives
  std::deque<ClearToSend> clearances_;

  std::deque<Receive> receives_;
  std::size_t cleared_ = 0;  // of `receives_`: are short, or may be written by the peer
  std::uint32_t next_in_ = 0;
  std::deque<Early> early_;
  std::uint16_t consumed_ = 0, credits_sent_ = 0;   // short messages: met receives; as told to the peer
  std::optional<std::uint32_t> awaited_, overdue_;  // at the last `clear_overdue`; cleared by it

  StreamCodes own_codes_, codes_;
  const std::size_t control_size_;
  const std::unique_ptr<std::byte[]> control_in_;  // no page is touched before a message needs it
  std::map<std::uint64_t, std::vector<std::byte>> control_out_;  // by work request, until acknowledged
  std::uint64_t next_id_ = 0;
  std::optional<std::uint64_t> heartbeat_id_;  // the heartbeat's work request, until it is answered
  std::uint64_t packets_seen_ = 0;
  Time heard_at_ = 0;
  bool answered_ = false;
  bool aborted_ = false;
  bool failed_ = false;
  bool leaving_ = false, said_goodbye_ = false;
  bool peer_left_ = false;
};

}  // namespace railweave
