// SPDX-License-Identifier: Apache-2.0
#include "roce/queue_pair.hpp"

namespace railweave::roce {
namespace {

constexpr std::uint16_t kPartitionKeyMask = 0x7fff;  // the top bit is the membership kind

const QueuePairOptions& checked(const QueuePairOptions& options) {
  options.check();
  return options;
}

}  // namespace

QueuePair::QueuePair(const QueuePairOptions& options, MemoryRegions& memory)
    : options_(checked(options)),
      requester_(options_, completions_, stats_),
      responder_(options_, memory, completions_, stats_) {}

void QueuePair::receive(Bytes transport, Time now) {
  if (const auto packet = parse(transport)) {
    receive(*packet, now);
  } else {
    ++stats_.refused;
  }
}

void QueuePair::receive(const Packet& packet, Time now) {
  if (packet.qpn != options_.qpn ||
      (packet.partition & kPartitionKeyMask) != (kDefaultPartition & kPartitionKeyMask)) {
    ++stats_.refused;
    return;
  }
  ++stats_.packets_received;
  switch (packet.shape().operation) {
    case Operation::kAcknowledge:
      requester_.on_acknowledge(packet, now);
      break;
    case Operation::kReadResponse:  // this end sends no READs
      ++stats_.refused;
      break;
    default:
      responder_.on_request(packet, now);
  }
  spread_failure();
}

// A waiting ACK goes behind a message's first packet. The ACK is shorter, so it ends that packet's
// super-packet and needs no frame for itself.
bool QueuePair::next(Packet& packet, Time now) {
  const bool begins = !began_message_ && responder_.has_answer() && requester_.begins_message();
  began_message_ = begins && requester_.transmit(packet, now);
  if (!began_message_ && !responder_.transmit(packet) && !requester_.transmit(packet, now)) return false;
  spread_failure();
  ++stats_.packets_sent;
  return true;
}

std::size_t QueuePair::transmit(MutableBytes to, Time now) {
  Packet packet;
  return next(packet, now) ? write(packet, to) : 0;
}

void QueuePair::expire(Time now) {
  requester_.expire(now);
  responder_.expire(now);
  spread_failure();
}

std::optional<Completion> QueuePair::poll() {
  if (completions_.empty()) return std::nullopt;
  const Completion completion = completions_.front();
  completions_.pop_front();
  return completion;
}

void QueuePair::abort() {
  requester_.fail(Status::kFlushed);
  responder_.fail();
}

/// Both halves of a connection fail together.
void QueuePair::spread_failure() {
  if (requester_.failed() == responder_.failed()) return;
  if (!requester_.failed()) requester_.fail(Status::kFlushed);
  if (!responder_.failed()) responder_.fail();
}

}  // namespace railweave::roce
