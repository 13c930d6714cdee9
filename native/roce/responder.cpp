// SPDX-License-Identifier: Apache-2.0
#include "roce/responder.hpp"

#include <algorithm>
#include <array>
#include <cstring>
#include <utility>

namespace railweave::roce {
namespace {

// The ACK of an unsolicited SEND is held until kHeldMost messages or kHeldFor, which is less than any
// time-out. If messages are short, an ACK costs as much as a message.
constexpr int kHeldMost = 4;
constexpr Duration kHeldFor = kMillisecond;

enum class Start : std::uint8_t { kNever, kMust, kMustNot };

// Whether a packet must start a message. Rows: the message that it would continue; columns: SEND, WRITE. This
// end has no resources for READs (the specification's "responder resources"), so it refuses them.
constexpr std::array<std::array<Start, 2>, 3> kLegal{{
    {Start::kMust, Start::kMust},
    {Start::kMustNot, Start::kNever},
    {Start::kNever, Start::kMustNot},
}};

}  // namespace

bool legal(Inside inside, Operation operation, bool starts) {
  const auto column = static_cast<std::size_t>(operation);
  const auto& row = kLegal[static_cast<std::size_t>(inside)];
  if (column >= row.size()) return false;
  return row[column] == (starts ? Start::kMust : Start::kMustNot);
}

Responder::Responder(const QueuePairOptions& options, MemoryRegions& memory, Completions& completions,
                     QueuePairStats& stats)
    : options_(options),
      memory_(memory),
      completions_(completions),
      stats_(stats),
      expected_(2 * kPsnHalf + options.receive_psn) {}

void Responder::post(const ReceiveRequest& request) {
  if (failed_) {
    completions_.push_back({request.id, CompletionKind::kReceive, Status::kFlushed, 0, {}});
  } else {
    receives_.push_back(request);
  }
}

void Responder::on_request(const Packet& packet, Time now) {
  if (failed_) return;
  const Sequence sequence = sequence_near(expected_, packet.psn);
  if (sequence < expected_) return on_duplicate();
  if (sequence > expected_) return on_out_of_order(sequence);

  // A NAK that asked for this packet is no longer needed.
  if (answer_ && answer_->verdict.kind != AckKind::kAck) answer_.reset();
  const Verdict verdict = carry_out(packet);
  gap_reported_ = verdict.kind == AckKind::kReceiverNotReady;  // packets behind a refused one need no NAK
  last_ahead_ = sequence;
  if (verdict.kind != AckKind::kAck) {
    answer(verdict, sequence);
    if (verdict.kind == AckKind::kNak) fail();
  } else if (packet.ack_request) {
    acknowledge(packet, sequence, now);
  }
}

Responder::Verdict Responder::carry_out(const Packet& packet) {
  const OpcodeShape& shape = packet.shape();
  if (!legal(inside_, shape.operation, shape.starts) || !size_fits(packet)) {
    return nak(NakCode::kInvalidRequest);
  }
  return shape.operation == Operation::kSend ? carry_out_send(packet) : carry_out_write(packet);
}

/// First and middle packets are full. A last one is not empty.
bool Responder::size_fits(const Packet& packet) const {
  const OpcodeShape& shape = packet.shape();
  const std::size_t size = packet.payload.size();
  if (!shape.ends) return size == options_.path_mtu;
  return size <= options_.path_mtu && (shape.starts || size > 0);
}

Responder::Verdict Responder::carry_out_send(const Packet& packet) {
  const OpcodeShape& shape = packet.shape();
  if (receives_.empty()) return not_ready();
  const MutableBytes buffer = receives_.front().buffer;
  const std::size_t offset = shape.starts ? 0 : received_;
  if (packet.payload.size() > buffer.size() - offset) return nak(NakCode::kInvalidRequest);
  if (!packet.payload.empty()) {
    std::memcpy(buffer.data() + offset, packet.payload.data(), packet.payload.size());
  }
  received_ = offset + packet.payload.size();
  inside_ = shape.ends ? Inside::kNothing : Inside::kSend;
  if (shape.ends) complete_receive(CompletionKind::kReceive, packet);
  advance(shape.ends);
  return kDone;
}

Responder::Verdict Responder::carry_out_write(const Packet& packet) {
  const OpcodeShape& shape = packet.shape();
  const std::uint64_t address = shape.starts ? packet.reth.address : write_address_;
  const std::uint32_t rkey = shape.starts ? packet.reth.rkey : write_rkey_;
  const std::size_t left = shape.starts ? packet.reth.length : write_left_;
  const std::size_t size = packet.payload.size();
  if (shape.ends ? size != left : size >= left) return nak(NakCode::kInvalidRequest);
  // Checks the whole range at the start, so that a bad message changes nothing. Checks each part again,
  // because the region may be gone.
  const std::size_t checked = shape.starts ? left : size;
  const MutableBytes to = memory_.find(rkey, address, checked, options_.qpn);
  if (checked > 0 && to.data() == nullptr) return nak(NakCode::kRemoteAccessError);
  if (shape.immediate && receives_.empty()) return not_ready();

  if (size > 0) std::memcpy(to.data(), packet.payload.data(), size);
  received_ = shape.starts ? size : received_ + size;
  write_address_ = address + size;
  write_rkey_ = rkey;
  write_left_ = left - size;
  inside_ = shape.ends ? Inside::kNothing : Inside::kWrite;
  if (shape.immediate) complete_receive(CompletionKind::kReceiveWrite, packet);
  advance(shape.ends);
  return kDone;
}

void Responder::complete_receive(CompletionKind kind, const Packet& packet) {
  Completion completion{
      receives_.front().id, kind, Status::kSuccess, static_cast<std::uint32_t>(received_), {}};
  if (packet.shape().immediate) completion.immediate = packet.immediate;
  receives_.pop_front();
  completions_.push_back(completion);
}

void Responder::advance(bool message_ends) {
  ++expected_;
  msn_ = (msn_ + (message_ends ? 1 : 0)) & kPsnMask;
}

/// Acknowledges everything carried out so far.
void Responder::on_duplicate() {
  ++stats_.duplicates;
  answer(kDone, expected_ - 1);
}

void Responder::on_out_of_order(Sequence sequence) {
  ++stats_.out_of_order;
  // One NAK per gap. A number that goes backwards shows that the requester went back and the packet was lost
  // again.
  const bool again = sequence < last_ahead_;
  last_ahead_ = sequence;
  if (gap_reported_ && !again) return;
  gap_reported_ = true;
  answer(nak(NakCode::kSequenceError), expected_);
}

void Responder::acknowledge(const Packet& packet, Sequence sequence, Time now) {
  const OpcodeShape& shape = packet.shape();
  const bool waits = shape.operation == Operation::kSend && shape.ends && !packet.solicited &&
                     !has_answer() && held_ + 1 < kHeldMost;
  const auto [held, until] = std::pair(held_, held_until_);
  answer(kDone, sequence);
  if (!waits) return;
  held_ = held + 1;
  held_until_ = until == kNever ? now + kHeldFor : until;
}

void Responder::release() {
  held_until_ = kNever;
  held_ = 0;
}

void Responder::expire(Time now) {
  if (held_until_ <= now) release();
}

void Responder::answer(Verdict verdict, Sequence sequence) {
  release();
  stats_.naks_sent += verdict.kind == AckKind::kAck ? 0 : 1;
  // A later answer includes the earlier one. But a NAK says more than an ACK of the packets before the NAK's.
  if (answer_ && verdict.kind == AckKind::kAck && sequence < answer_->sequence) return;
  answer_ = Answer{sequence, verdict};
}

bool Responder::transmit(Packet& packet) {
  if (!has_answer()) return false;
  packet = Packet{};
  packet.qpn = options_.peer_qpn;
  packet.opcode = Opcode::kAcknowledge;
  packet.psn = psn_of(answer_->sequence);
  packet.aeth = {answer_->verdict.kind, answer_->verdict.value, msn_};
  answer_.reset();
  return true;
}

void Responder::fail() {
  failed_ = true;
  for (const ReceiveRequest& request : receives_) {
    completions_.push_back({request.id, CompletionKind::kReceive, Status::kFlushed, 0, {}});
  }
  receives_.clear();
}

}  // namespace railweave::roce
