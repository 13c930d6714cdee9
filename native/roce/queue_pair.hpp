// SPDX-License-Identifier: Apache-2.0
// A reliable connection to one peer, without I/O or clock. Packets and the time go in; packets, a deadline
// and completions come out. A packet is BTH to padding here: frame.hpp adds the frame and the ICRC.
#pragma once

#include <algorithm>
#include <optional>

#include "roce/memory.hpp"
#include "roce/requester.hpp"
#include "roce/responder.hpp"
#include "roce/work.hpp"

namespace railweave::roce {

class QueuePair {
 public:
  /// Ready to send and receive. `memory` outlives the queue pair. Throws std::invalid_argument on impossible
  /// options.
  QueuePair(const QueuePairOptions& options, MemoryRegions& memory);
  QueuePair(const QueuePair&) = delete;
  QueuePair& operator=(const QueuePair&) = delete;

  /// Requests are carried out and completed in order. After a failure they complete as flushed.
  void post(const WorkRequest& request) { requester_.post(request); }
  void post_receive(const ReceiveRequest& request) { responder_.post(request); }

  /// Takes a packet from the peer. A malformed, misdirected or impossible packet is counted and dropped, or
  /// refused with a NAK.
  void receive(Bytes transport, Time now);
  void receive(const Packet& packet, Time now);
  /// Fills in the next packet to send; false: nothing now. Answers go behind the first packet of a message.
  /// The payload is a view that the next call may invalidate, so write it out at once.
  bool next(Packet& packet, Time now);
  /// Writes the next packet into `to`, which holds path MTU + kMaxOverhead bytes; 0: nothing to send now.
  std::size_t transmit(MutableBytes to, Time now);

  Time deadline() const { return std::min(requester_.deadline(), responder_.deadline()); }
  void expire(Time now);

  std::optional<Completion> poll();

  /// Sets how many retransmissions without progress the connection survives, and the longest time between
  /// two.
  void set_patience(int retries, Duration max_timeout) {
    options_.retries = retries;
    options_.max_timeout = max_timeout;
  }

  /// Gives the buffers of posted work requests back before their completions. A request that has begun goes
  /// on from a copy, so that the connection stays usable. A request that has not begun is forgotten, without
  /// a completion. Returns the number of forgotten SENDs.
  std::size_t release_buffers() { return requester_.release_buffers(); }

  /// Ends the connection at once. Posted requests complete as flushed, buffers go back to their owners, and
  /// nothing is sent.
  void abort();

  /// True if no request is carried out any more, in either direction.
  bool failed() const { return requester_.failed(); }
  const QueuePairOptions& options() const { return options_; }
  const QueuePairStats& stats() const { return stats_; }
  const Requester& requester() const { return requester_; }

 private:
  void spread_failure();

  QueuePairOptions options_;
  QueuePairStats stats_;
  Completions completions_;
  Requester requester_;
  Responder responder_;
  bool began_message_ = false;  // the last packet began one
};

}  // namespace railweave::roce
