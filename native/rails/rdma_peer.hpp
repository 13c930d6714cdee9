// SPDX-License-Identifier: Apache-2.0
// Messages to and from one peer over one connection. The receiver clears each posted receive with a small
// SEND; the sender answers with an RDMA WRITE with immediate data, straight into place. Several are in
// flight.
#pragma once

#include <deque>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "collectives/transport.hpp"
#include "rails/rdma_device.hpp"
#include "rails/rdma_message.hpp"

namespace railweave {

/// What a peer has done whose connection has failed with that status; behind its name.
std::string why(roce::Status status);

struct RdmaPeerOptions {
  int own_rank;
  int rank;
  std::string name;  // "rank 2 at 10.3.0.3"
  // Of the queue pair, once the peer has answered.
  int retries;
  Duration max_timeout;
};

class RdmaPeer {
 public:
  /// Reports to `listener` as a transport would, from inside `drain` and `begin`; a failure once.
  RdmaPeer(RdmaPeerOptions options, RdmaConnection& connection, TransportListener& listener);
  RdmaPeer(const RdmaPeer&) = delete;
  RdmaPeer& operator=(const RdmaPeer&) = delete;

  void begin(const MessageLabel& label, Time now);
  void pass_over(const CallDescription& call, Time now);
  void post_send(Bytes data, Time now);
  void post_receive(MutableBytes into, Time now);
  /// Takes what the queue pair has completed; false if that was nothing.
  bool drain(Time now);

  /// Asks the peer's process for a sign of life, unless an answer is awaited anyway.
  void heartbeat();
  /// Asks for the first one, as often as it takes.
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
    std::uint32_t sequence = 0;  // once cleared
    std::uint32_t rkey = 0;
  };

  void clear_receives();
  void check_peer_is_there(Time now);
  bool needs_peer() const { return !receives_.empty() || written_ < sends_.size(); }
  void match(Time now);
  bool agrees(const Outgoing& send, const ClearToSend& clearance, Time now);
  void check_waiting_clearance(Time now);

  void take(const roce::Completion& completion, Time now);
  void take_control(Bytes message, Time now);
  void take_written(const roce::Completion& completion, Time now);
  void note_answer();
  void post_heartbeat();
  void take_failure(const roce::Completion& completion, Time now);

  void send_control(std::vector<std::byte> message, bool quiet = false);
  void post_control_buffer(std::size_t index);
  void fail(FailureKind kind, const std::string& message, Time now);
  void fail(const Failure& failure, Time now);

  const RdmaPeerOptions options_;
  RdmaConnection& connection_;
  TransportListener& listener_;
  MessageLabel label_{};
  bool begun_ = false;  // label_ means something

  std::deque<Outgoing> sends_;
  std::size_t written_ = 0;  // of them, those whose WRITE is posted
  std::deque<ClearToSend> clearances_;
  std::deque<Receive> receives_;
  std::size_t cleared_ = 0;  // of them, those that the peer knows of
  std::uint32_t next_sequence_ = 0;

  std::vector<std::vector<std::byte>> control_in_;
  std::map<std::uint64_t, std::vector<std::byte>> control_out_;  // by work request, until acknowledged
  std::uint64_t next_id_ = 0;
  std::optional<std::uint64_t> heartbeat_id_;  // the heartbeat's work request, until it is answered
  std::uint64_t packets_seen_ = 0;
  Time heard_at_ = 0;
  bool answered_ = false;  // the peer has answered
  bool aborted_ = false;
  bool failed_ = false;
  bool said_goodbye_ = false;
  bool peer_left_ = false;
};

}  // namespace railweave
