// SPDX-License-Identifier: Apache-2.0
// Messages to and from one peer over one connection; several are in flight. A short one is a SEND, sent as
// soon as it is posted, up to kShortAhead of them ahead of the peer's receives. For a longer one the receiver
// sends a clearance; the sender answers with an RDMA WRITE with immediate data, straight into place.
//
// Whoever waits for a message that does not come, as the other calls something else, must learn of it: labels
// are compared by whoever has got a message or a clearance, and for a short message that is overdue its
// receiver sends a clearance as well.
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

/// What a peer has done whose connection has failed with that status; behind its name.
std::string why(roce::Status status);

struct RdmaPeerOptions {
  int rank;
  std::string name;         // "rank 2 at 10.3.0.3"
  std::size_t short_bytes;  // of data that go without a clearance, at most; alike on both ranks
  // Of the queue pair, once the peer has answered.
  int retries;
  Duration max_timeout;
  Key own_key, key;  // of the codes of this rank's control messages, and of the peer's
};

class RdmaPeer {
 public:
  /// Reports to `listener` as a transport would, from inside `drain` and `check_waiting`; a failure once.
  RdmaPeer(RdmaPeerOptions options, const CallCheck& check, RdmaConnection& connection,
           TransportListener& listener);
  RdmaPeer(const RdmaPeer&) = delete;
  RdmaPeer& operator=(const RdmaPeer&) = delete;

  /// This rank has come to another call.
  void check_waiting(Time now);
  void post_send(Bytes data, Time now);
  void post_receive(MutableBytes into, Time now);
  /// Takes what the queue pair has completed; false if that was nothing.
  bool drain(Time now);

  /// Asks the peer's process for a sign of life, unless an answer is awaited anyway.
  void heartbeat();
  /// Asks for the oldest message, if it is a short one that was awaited at the latest call, too. Whether one
  /// is awaited.
  bool clear_overdue();
  /// Asks for the first sign of life, as often as it takes.
  void probe() { post_heartbeat(); }
  /// The peer has answered.
  bool answered() const { return answered_; }
  /// When something was last found to have come; 0: never.
  Time heard_at() const { return heard_at_; }

  /// Lets go of all buffers; what the peer still writes goes nowhere, and nothing completes any more.
  void abort();
  /// The same, and ends the connection at once and without a word.
  void halt();
  void announce(const Failure& failure);
  void close();
  /// All is acknowledged and the peer has said goodbye, or nobody cares any more.
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
    std::optional<std::uint32_t> rkey{};  // while the peer may write there
  };
  /// A short message that no receive has met.
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
  std::size_t sent_ = 0;                                 // of them, those that are posted to the connection
  std::uint32_t first_out_ = 0;                          // sequence of the oldest
  std::uint16_t shorts_out_ = 0, credits_received_ = 0;  // short ones sent, and met by the peer's receives
  std::deque<ClearToSend> clearances_;

  std::deque<Receive> receives_;
  std::size_t cleared_ = 0;  // of them, short ones and those that the peer may write
  std::uint32_t next_in_ = 0;
  std::deque<Early> early_;
  std::uint16_t consumed_ = 0, credits_sent_ = 0;   // short ones that have met receives; as the peer knows
  std::optional<std::uint32_t> awaited_, overdue_;  // at the latest `clear_overdue`; what it cleared

  StreamCodes own_codes_, codes_;
  const std::size_t control_size_;
  const std::unique_ptr<std::byte[]> control_in_;  // no page is touched before a message needs it
  std::map<std::uint64_t, std::vector<std::byte>> control_out_;  // by work request, until acknowledged
  std::uint64_t next_id_ = 0;
  std::optional<std::uint64_t> heartbeat_id_;  // the heartbeat's work request, until it is answered
  std::uint64_t packets_seen_ = 0;
  Time heard_at_ = 0;
  bool answered_ = false;  // the peer has answered
  bool aborted_ = false;
  bool failed_ = false;
  bool leaving_ = false, said_goodbye_ = false;
  bool peer_left_ = false;
};

}  // namespace railweave
