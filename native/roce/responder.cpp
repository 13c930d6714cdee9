// SPDX-License-Identifier: Apache-2.0
#include "roce/responder.hpp"

#include <algorithm>
#include <array>
#include <cstring>
#include <utility>

namespace railweave::roce {
namespace {

// The acknowledgement of a SEND that is not solicited waits for so many more, or so long, which is less than
// any time-out: where messages are short, it costs as much as they do.
constexpr int kHeldMost = 4;
constexpr Duration kHeldFor = kMillisecond;

enum class Start : std::uint8_t { kNever, kMust, kMustNot };

// Rows: inside which message; columns: SEND, WRITE, READ request. What a packet's "starts a message" has to
// be.
constexpr std::array<std::array<Start, 3>, 3> kLegal{{
    {Start::kMust, Start::kMust, Start::kMust},
    {Start::kMustNot, Start::kNever, Start::kNever},
    {Start::kNever, Start::kMustNot, Start::kNever},
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
  if (sequence < expected_) return on_duplicate(packet, sequence);
  if (sequence > expected_) return on_out_of_order(sequence);

  // An answer that asked for this very packet has become pointless.
  if (!answers_.empty() && answers_.back().kind != AckKind::kAck) answers_.pop_back();
  const Verdict verdict = carry_out(packet);
  gap_reported_ = verdict.kind == AckKind::kReceiverNotReady;  // what follows a refused packet is no news
  last_ahead_ = sequence;
  if (verdict.kind != AckKind::kAck) {
    answer(verdict, sequence);
    if (verdict.kind == AckKind::kNak) fail();
  } else if (packet.ack_request && packet.opcode != Opcode::kReadRequest) {
    acknowledge(packet, sequence, now);
  }
}

Responder::Verdict Responder::carry_out(const Packet& packet) {
  const OpcodeShape& shape = packet.shape();
  if (!legal(inside_, shape.operation, shape.starts) || !size_fits(packet)) {
    return nak(NakCode::kInvalidRequest);
  }
  switch (shape.operation) {
    case Operation::kSend:
      return carry_out_send(packet);
    case Operation::kWrite:
      return carry_out_write(packet);
    default:
      return carry_out_read(packet);
  }
}

/// First and middle packets are full; a last one is not empty; a READ request carries nothing.
bool Responder::size_fits(const Packet& packet) const {
  const OpcodeShape& shape = packet.shape();
  const std::size_t size = packet.payload.size();
  if (shape.operation == Operation::kReadRequest) return size == 0;
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
  advance(1, shape.ends);
  return kDone;
}

Responder::Verdict Responder::carry_out_write(const Packet& packet) {
  const OpcodeShape& shape = packet.shape();
  const std::uint64_t address = shape.starts ? packet.reth.address : write_address_;
  const std::uint32_t rkey = shape.starts ? packet.reth.rkey : write_rkey_;
  const std::size_t left = shape.starts ? packet.reth.length : write_left_;
  const std::size_t size = packet.payload.size();
  if (shape.ends ? size != left : size >= left) return nak(NakCode::kInvalidRequest);
  // The whole range at the start, so that a bad message changes nothing; each part again, for the region may
  // be gone.
  const std::size_t checked = shape.starts ? left : size;
  const MutableBytes to = memory_.find(rkey, address, checked, kRemoteWrite, options_.qpn);
  if (checked > 0 && to.data() == nullptr) return nak(NakCode::kRemoteAccessError);
  if (shape.immediate && receives_.empty()) return not_ready();

  if (size > 0) std::memcpy(to.data(), packet.payload.data(), size);
  received_ = shape.starts ? size : received_ + size;
  write_address_ = address + size;
  write_rkey_ = rkey;
  write_left_ = left - size;
  inside_ = shape.ends ? Inside::kNothing : Inside::kWrite;
  if (shape.immediate) complete_receive(CompletionKind::kReceiveWrite, packet);
  advance(1, shape.ends);
  return kDone;
}

Responder::Verdict Responder::carry_out_read(const Packet& packet) {
  const Reth& reth = packet.reth;
  if (reads_waiting() >= static_cast<std::size_t>(options_.max_reads) || reth.length > 1u << 31) {
    return nak(NakCode::kInvalidRequest);
  }
  const MutableBytes from = memory_.find(reth.rkey, reth.address, reth.length, kRemoteRead, options_.qpn);
  if (reth.length > 0 && from.data() == nullptr) return nak(NakCode::kRemoteAccessError);
  const Sequence count = packets_for(reth.length, options_.path_mtu);
  release();
  answers_.push_back({true, expected_, expected_ + count, AckKind::kAck, kCreditsUnlimited, reth, expected_});
  advance(count, true);
  return kDone;
}

void Responder::complete_receive(CompletionKind kind, const Packet& packet) {
  Completion completion{
      receives_.front().id, kind, Status::kSuccess, static_cast<std::uint32_t>(received_), {}};
  if (packet.shape().immediate) completion.immediate = packet.immediate;
  receives_.pop_front();
  completions_.push_back(completion);
}

void Responder::advance(Sequence count, bool message_ends) {
  expected_ += count;
  msn_ = (msn_ + (message_ends ? 1 : 0)) & kPsnMask;
}

void Responder::on_duplicate(const Packet& packet, Sequence sequence) {
  ++stats_.duplicates;
  if (packet.opcode == Opcode::kReadRequest) {
    repeat_read(packet, sequence);
  } else {
    answer(kDone, expected_ - 1);  // carried out before: acknowledge as far as we have come
  }
}

/// A READ is carried out again, with the memory as it is now. What it cannot have asked before is dropped.
void Responder::repeat_read(const Packet& packet, Sequence sequence) {
  const Sequence end = sequence + packets_for(packet.reth.length, options_.path_mtu);
  const MutableBytes from =
      memory_.find(packet.reth.rkey, packet.reth.address, packet.reth.length, kRemoteRead, options_.qpn);
  if (end > expected_ || (packet.reth.length > 0 && from.data() == nullptr)) return;
  // The requester has gone back to this number: older answers beyond it would only be dropped there.
  while (!answers_.empty() && answers_.back().end > sequence) {
    if (answers_.back().next < sequence) {
      answers_.back().end = sequence;
      break;
    }
    answers_.pop_back();
  }
  release();
  gap_reported_ = false;  // a NAK may have been among them
  if (reads_waiting() >= static_cast<std::size_t>(options_.max_reads)) return;
  answers_.push_back({true, sequence, end, AckKind::kAck, kCreditsUnlimited, packet.reth, sequence});
}

void Responder::on_out_of_order(Sequence sequence) {
  ++stats_.out_of_order;
  // One NAK per gap; a number that runs backwards shows that the requester went back and the packet was lost
  // once more.
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
  // Of two answers in a row the later says all that the earlier does, save that a NAK says more than what it
  // acknowledges.
  if (!answers_.empty() && !answers_.back().is_read) {
    if (verdict.kind == AckKind::kAck && sequence < answers_.back().first) return;
    answers_.pop_back();
  }
  answers_.push_back({false, sequence, sequence + 1, verdict.kind, verdict.value, {}, sequence});
}

std::size_t Responder::reads_waiting() const {
  return static_cast<std::size_t>(
      std::count_if(answers_.begin(), answers_.end(), [](const Answer& waiting) { return waiting.is_read; }));
}

bool Responder::transmit(Packet& packet) {
  if (!has_answer()) return false;
  Answer& front = answers_.front();
  packet = Packet{};
  packet.qpn = options_.peer_qpn;
  if (front.is_read && fill_read_response(front, packet)) {
    if (++front.next == front.end) answers_.pop_front();
    return true;
  }
  if (front.is_read) {  // the region went away while its data were being sent
    const Answer refused{false,
                         front.next,
                         front.next + 1,
                         AckKind::kNak,
                         static_cast<std::uint8_t>(NakCode::kRemoteAccessError),
                         {},
                         front.next};
    answers_.assign(1, refused);
    fail();
  }
  const Answer& simple = answers_.front();
  packet.opcode = Opcode::kAcknowledge;
  packet.psn = psn_of(simple.first);
  packet.aeth = {simple.kind, simple.value, msn_};
  answers_.pop_front();
  return true;
}

bool Responder::fill_read_response(Answer& read, Packet& packet) {
  const Sequence index = read.next - read.first;
  const Sequence packets = packets_for(read.reth.length, options_.path_mtu);
  const MutableBytes all =
      memory_.find(read.reth.rkey, read.reth.address, read.reth.length, kRemoteRead, options_.qpn);
  if (read.reth.length > 0 && all.data() == nullptr) return false;
  packet.opcode = opcode_for(Operation::kReadResponse, index == 0, index + 1 == packets, false);
  packet.psn = psn_of(read.next);
  packet.aeth = {AckKind::kAck, kCreditsUnlimited, msn_};
  packet.payload = payload_of(all, index, options_.path_mtu);
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
