// SPDX-License-Identifier: Apache-2.0
// This rank's ends of a ring of reliable connections whose WRITEs a switch adds up
// (docs/design/netreduce.md). Messages go to the next rank. The sums of all ranks' messages come from the
// rank before.
#pragma once

#include <cstdint>
#include <deque>
#include <optional>
#include <string>
#include <vector>

#include "collectives/transport.hpp"
#include "rails/rdma_device.hpp"

namespace railweave {

struct SumRingOptions {
  std::size_t path_mtu;
  std::size_t window_packets;  // most packets in messages without a sum; a power of two
  std::uint64_t next_packet;   // packets that each rank's connection counts as carried
  int next_rank, rank_before;
  std::string next_name, name_before;  // "rank 2 at 10.3.0.3"
  bool impatient;                      // some member's device gives up if it has to wait for late ranks
};

class SumRing {
 public:
  /// `out` leads to the next rank, `into` comes from the rank before. They and `listener` outlive the ring. A
  /// failure is reported once, from inside `drain`.
  SumRing(const SumRingOptions& options, RdmaConnection& out, RdmaConnection& into,
          TransportListener& listener);
  SumRing(const SumRing&) = delete;
  SumRing& operator=(const SumRing&) = delete;

  std::size_t packet_bytes() const { return options_.path_mtu; }
  std::size_t message_bytes() const { return message_packets_ * packet_bytes(); }

  /// Where the rank before must write. That rank must know this before it posts.
  struct Target {
    std::uint64_t address;
    std::uint32_t rkey;
  };
  Target inbox() const { return {reinterpret_cast<std::uintptr_t>(inbox_.bytes.data()), inbox_.rkey}; }
  /// Sets where this rank writes.
  void aim(const Target& target) { target_ = target; }

  /// Memory for the next message; empty while the window is full.
  MutableBytes room();
  /// Sends the first `bytes` of `room`, a multiple of the packet size.
  void post(std::size_t bytes);
  /// The sum of the oldest posted message, until `taken`. Empty while the sum has not arrived.
  Bytes sum() const;
  /// The rank no longer needs `sum`.
  void taken();

  /// Takes the completions of the queue pairs. Returns false if there were no completions.
  bool drain(Time now);
  /// Whether all posted messages have arrived at the next rank, or never will.
  bool idle() const { return written_ == posted_ || failed_; }
  /// Packets of this rank's connection so far, including posted packets.
  std::uint64_t next_packet() const { return next_packet_; }

  /// Ends the connections at once, without telling the peers.
  void halt();

  /// Whether this rank may post only when all ranks are about to post.
  bool impatient() const { return options_.impatient; }

  const RdmaConnection& out() const { return out_; }
  const RdmaConnection& into() const { return into_; }

 private:
  void take(const roce::Completion& completion, int rank, const std::string& name, Time now);
  void check(const RdmaConnection& connection, int rank, const std::string& name, Time now);
  void fail(int rank, const std::string& message, Time now);
  std::size_t place(std::uint64_t message) const { return message % messages_ * message_bytes(); }

  const SumRingOptions options_;
  RdmaConnection& out_;
  RdmaConnection& into_;
  TransportListener& listener_;
  const std::size_t messages_;  // in the window, at most
  const std::size_t message_packets_;
  std::vector<std::byte> outbox_;       // places of `messages_` messages, used cyclically
  const RdmaConnection::Region inbox_;  // places of `messages_` sums, used cyclically
  Target target_{};
  std::uint64_t next_packet_;
  // Messages so far. A place of the outbox is free when its message has arrived. A place of the inbox is free
  // when its sum is taken, because the next sum there includes this rank's next message.
  std::uint64_t posted_ = 0, written_ = 0, arrived_ = 0, taken_ = 0;
  std::deque<std::size_t> sizes_;  // of posted messages without a taken sum
  bool failed_ = false;            // or halted
};

}  // namespace railweave
