// SPDX-License-Identifier: Apache-2.0
// This rank's ends of a ring of reliable connections whose WRITEs a switch adds up
// (docs/design/netreduce.md): messages go to the next rank, the sums of all ranks' messages come from the
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
  std::size_t window_packets;  // of messages whose sums are not here, together; a power of two
  std::uint64_t next_packet;   // how many all ranks' connections are taken to have carried
  int next_rank, rank_before;
  std::string next_name, name_before;  // "rank 2 at 10.3.0.3"
  bool impatient;                      // some member's device gives up if it has to wait for late ranks
};

class SumRing {
 public:
  /// `out` leads to the next rank, `into` comes from the one before. All outlive the ring. A failure is
  /// reported once, from inside `drain`.
  SumRing(const SumRingOptions& options, RdmaConnection& out, RdmaConnection& into,
          TransportListener& listener);
  SumRing(const SumRing&) = delete;
  SumRing& operator=(const SumRing&) = delete;

  std::size_t packet_bytes() const { return options_.path_mtu; }
  std::size_t message_bytes() const { return message_packets_ * packet_bytes(); }

  /// Where the rank before is to write; it must be told before it posts.
  struct Target {
    std::uint64_t address;
    std::uint32_t rkey;
  };
  Target inbox() const { return {reinterpret_cast<std::uintptr_t>(inbox_.bytes.data()), inbox_.rkey}; }
  /// Where this rank is to write.
  void aim(const Target& target) { target_ = target; }

  /// Memory for the next message; empty while the window is full.
  MutableBytes room();
  /// Sends so many bytes of it, a multiple of a packet's.
  void post(std::size_t bytes);
  /// The sum of the oldest message posted, until it is `taken`; empty: not here yet.
  Bytes sum() const;
  /// The rank needs it no more.
  void taken();

  /// Takes what the queue pairs have completed; false if that was nothing.
  bool drain(Time now);
  /// All that was posted has arrived at the next rank, or never will.
  bool idle() const { return written_ == posted_ || failed_; }
  /// How many packets this rank's connection has carried, or will have.
  std::uint64_t next_packet() const { return next_packet_; }

  /// Ends the connections at once and without a word.
  void halt();

  /// Nothing may be posted before all ranks are about to post as well.
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
  std::vector<std::byte> outbox_;       // places of `messages_` messages, taken in turn
  const RdmaConnection::Region inbox_;  // likewise
  Target target_{};
  std::uint64_t next_packet_;
  // Messages so far. A place of the outbox is free once its message has arrived, one of the inbox once its
  // sum is taken: the next one there has this rank's part in it.
  std::uint64_t posted_ = 0, written_ = 0, arrived_ = 0, taken_ = 0;
  std::deque<std::size_t> sizes_;  // of messages that are posted and not taken
  bool failed_ = false;            // or halted
};

}  // namespace railweave
