// SPDX-License-Identifier: Apache-2.0
// The receiving half of a queue pair: carries out requests in the order of their PSNs and answers them.
#pragma once

#include <deque>
#include <optional>

#include "roce/memory.hpp"
#include "roce/packet.hpp"
#include "roce/work.hpp"

namespace railweave::roce {

/// The kind of message that the next packet must continue.
enum class Inside : std::uint8_t { kNothing, kSend, kWrite };

/// Returns whether a packet of `operation`, which starts a message or not, is legal inside that message.
bool legal(Inside inside, Operation operation, bool starts);

class Responder {
 public:
  Responder(const QueuePairOptions& options, MemoryRegions& memory, Completions& completions,
            QueuePairStats& stats);

  void post(const ReceiveRequest& request);
  void on_request(const Packet& packet, Time now);
  bool has_answer() const { return answer_ && held_until_ == kNever; }
  /// Fills in the next answer; false: nothing now. Also works after a failure, so that the last NAK leaves.
  bool transmit(Packet& packet);
  Time deadline() const { return held_until_; }
  void expire(Time now);

  bool failed() const { return failed_; }
  /// Flushes the receive queue; requests are no longer carried out.
  void fail();

 private:
  /// The outcome of a request: carried out, answered with an RNR NAK, or answered with a NAK that ends the
  /// connection.
  struct Verdict {
    AckKind kind;
    std::uint8_t value;
  };
  struct Answer {
    Sequence sequence;
    Verdict verdict;
  };
  static constexpr Verdict kDone{AckKind::kAck, kCreditsUnlimited};
  static constexpr Verdict nak(NakCode code) { return {AckKind::kNak, static_cast<std::uint8_t>(code)}; }
  Verdict not_ready() const { return {AckKind::kReceiverNotReady, options_.rnr_timer}; }

  Verdict carry_out(const Packet& packet);
  Verdict carry_out_send(const Packet& packet);
  Verdict carry_out_write(const Packet& packet);
  bool size_fits(const Packet& packet) const;
  void complete_receive(CompletionKind kind, const Packet& packet);
  void advance(bool message_ends);

  void on_duplicate();
  void on_out_of_order(Sequence sequence);

  void answer(Verdict verdict, Sequence sequence);
  void acknowledge(const Packet& packet, Sequence sequence, Time now);
  void release();

  const QueuePairOptions& options_;
  MemoryRegions& memory_;
  Completions& completions_;
  QueuePairStats& stats_;
  std::deque<ReceiveRequest> receives_;
  std::optional<Answer> answer_;  // waits to be sent
  Time held_until_ = kNever;      // until then `answer_` is held; it acknowledges `held_` messages
  int held_ = 0;
  Sequence expected_;
  std::uint32_t msn_ = 0;
  Inside inside_ = Inside::kNothing;
  std::size_t received_ = 0;         // bytes of the message being received
  std::uint64_t write_address_ = 0;  // where the message's next packet goes
  std::uint32_t write_rkey_ = 0;
  std::size_t write_left_ = 0;
  bool gap_reported_ = false;  // a NAK for `expected_` is on its way
  Sequence last_ahead_ = 0;    // newest request dropped behind that gap
  bool failed_ = false;
};

}  // namespace railweave::roce
