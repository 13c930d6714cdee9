// SPDX-License-Identifier: Apache-2.0
// The receiving half of a queue pair: carries out requests in the order of their PSNs and answers them.
#pragma once

#include <deque>

#include "roce/memory.hpp"
#include "roce/packet.hpp"
#include "roce/work.hpp"

namespace railweave::roce {

/// Inside which message the next packet is expected.
enum class Inside : std::uint8_t { kNothing, kSend, kWrite };

/// Whether a packet of `operation` that starts a message (or not) is legal there.
bool legal(Inside inside, Operation operation, bool starts);

class Responder {
 public:
  Responder(const QueuePairOptions& options, MemoryRegions& memory, Completions& completions,
            QueuePairStats& stats);

  void post(const ReceiveRequest& request);
  void on_request(const Packet& packet, Time now);
  bool has_answer() const { return !answers_.empty() && held_until_ == kNever; }
  /// Fills the next answer; false if there is none. Works on after a failure, so that the last NAK gets out.
  bool transmit(Packet& packet);
  Time deadline() const { return held_until_; }
  void expire(Time now);

  bool failed() const { return failed_; }
  /// Flushes the receive queue; requests are no longer carried out.
  void fail();

 private:
  /// An answer that waits to be sent: an ACK or NAK, or the rest of a READ's data.
  struct Answer {
    bool is_read;
    Sequence first;
    Sequence end;
    AckKind kind = AckKind::kAck;
    std::uint8_t value = kCreditsUnlimited;
    Reth reth{};
    Sequence next = 0;  // of a READ: the response to be sent next
  };

  /// What became of a request: carried out, or to be answered with an RNR NAK, or with a NAK that ends the
  /// connection.
  struct Verdict {
    AckKind kind;
    std::uint8_t value;
  };
  static constexpr Verdict kDone{AckKind::kAck, kCreditsUnlimited};
  static constexpr Verdict nak(NakCode code) { return {AckKind::kNak, static_cast<std::uint8_t>(code)}; }
  Verdict not_ready() const { return {AckKind::kReceiverNotReady, options_.rnr_timer}; }

  Verdict carry_out(const Packet& packet);
  Verdict carry_out_send(const Packet& packet);
  Verdict carry_out_write(const Packet& packet);
  Verdict carry_out_read(const Packet& packet);
  bool size_fits(const Packet& packet) const;
  void complete_receive(CompletionKind kind, const Packet& packet);
  void advance(Sequence count, bool message_ends);

  void on_duplicate(const Packet& packet, Sequence sequence);
  void on_out_of_order(Sequence sequence);
  void repeat_read(const Packet& packet, Sequence sequence);

  void answer(Verdict verdict, Sequence sequence);
  void acknowledge(const Packet& packet, Sequence sequence, Time now);
  void release();
  bool fill_read_response(Answer& read, Packet& packet);
  std::size_t reads_waiting() const;

  const QueuePairOptions& options_;
  MemoryRegions& memory_;
  Completions& completions_;
  QueuePairStats& stats_;
  std::deque<ReceiveRequest> receives_;
  std::deque<Answer> answers_;
  Time held_until_ = kNever;  // the only answer, which acknowledges `held_` messages
  int held_ = 0;
  Sequence expected_;
  std::uint32_t msn_ = 0;
  Inside inside_ = Inside::kNothing;
  std::size_t received_ = 0;         // of the message being received
  std::uint64_t write_address_ = 0;  // where the message's next packet goes
  std::uint32_t write_rkey_ = 0;
  std::size_t write_left_ = 0;
  bool gap_reported_ = false;  // a NAK for `expected_` is on its way
  Sequence last_ahead_ = 0;    // newest request dropped behind that gap
  bool failed_ = false;
};

}  // namespace railweave::roce
