// SPDX-License-Identifier: Apache-2.0
#include "rails/rdma_endpoint.hpp"

#include <sys/random.h>

#include <algorithm>
#include <stdexcept>
#include <utility>

#include "rails/soft_connection.hpp"
#include "roce/frame.hpp"

namespace railweave {
namespace {

constexpr Duration kFullQueueRetry = kMillisecond;

std::size_t largest_packet(std::size_t path_mtu) {
  // An MTU is a multiple of four.
  return kIpv4Size + kUdpSize + path_mtu + roce::kMaxOverhead - 3 + roce::kIcrcSize;
}

std::unique_ptr<FrameSocket> open_socket(const RdmaEndpointOptions& options) {
  return std::make_unique<FrameSocket>(options.interface, options.address, largest_packet(options.path_mtu));
}

std::uint32_t random_number() {
  std::uint32_t number;
  if (getrandom(&number, sizeof number, 0) != sizeof number) throw std::runtime_error("no random numbers");
  return number;
}

}  // namespace

RdmaEndpoint::RdmaEndpoint(const RdmaEndpointOptions& options)
    : options_(options),
      socket_(open_socket(options)),
      next_ip_id_(static_cast<std::uint16_t>(random_number())) {}

std::unique_ptr<FrameSocket> RdmaEndpoint::reopen() {
  auto opened = open_socket(options_);
  blocked_ = false;
  retry_at_ = kNever;
  refused_before_ = stats_.segmentation_refused;
  return std::exchange(socket_, std::move(opened));
}

std::uint32_t RdmaEndpoint::reserve_queue_pair_number() {
  for (;;) {
    const std::uint32_t number = random_number() & roce::kPsnMask;
    if (number >= kFirstFreeNumber && connections_.try_emplace(number).second) return number;
  }
}

roce::QueuePair& RdmaEndpoint::connect(roce::QueuePairOptions options, roce::Ipv4Address peer,
                                       const roce::MacAddress& peer_mac) {
  options.path_mtu = options_.path_mtu;
  Connection& connection = connections_[options.qpn];
  if (connection.queue_pair) {
    throw std::invalid_argument("queue pair " + std::to_string(options.qpn) + " is connected already");
  }
  connection.path = {.source_mac = mac(),
                     .peer_mac = peer_mac,
                     .source = options_.address,
                     .peer = peer,
                     .source_port = static_cast<std::uint16_t>(0xc000 | (options.qpn & 0x3fff))};
  connection.queue_pair = std::make_unique<roce::QueuePair>(options, memory_);
  return *connection.queue_pair;
}

RdmaConnection& RdmaEndpoint::join(const roce::QueuePairOptions& options, roce::Ipv4Address peer,
                                   const roce::MacAddress& peer_mac, Time) {
  roce::QueuePair& queue_pair = connect(options, peer, peer_mac);
  auto& joined = connections_[options.qpn].joined;
  joined = std::make_unique<SoftConnection>(queue_pair, memory_);
  return *joined;
}

void RdmaEndpoint::disconnect(std::uint32_t number) {
  const auto found = connections_.find(number);
  if (found == connections_.end()) return;
  found->second.joined.reset();
  found->second.queue_pair.reset();
}

bool RdmaEndpoint::receive(Time now) {
  return socket_->receive([this, now](Bytes frame, const Offload& offload) {
    roce::OpenedFrames frames(frame, offload);
    while (const auto* opened = frames.next()) on_packet(*opened, now);
  });
}

void RdmaEndpoint::on_packet(const roce::OpenedFrame& opened, Time now) {
  ++stats_.frames_received;
  stats_.bytes_received += roce::kFrameHeaderSize + opened.transport.size() + roce::kIcrcSize;
  const auto packet = opened.fault == roce::FrameFault::kNone ? roce::parse(opened.transport) : std::nullopt;
  if (!packet) {
    ++stats_.refused;
    return;
  }
  const auto found = connections_.find(packet->qpn);
  if (found == connections_.end()) {
    ++stats_.strangers;
  } else if (!found->second.queue_pair) {
    return;  // the queue pair has ended, or the peer is ready before this rank and will try again
  } else if (found->second.path.peer != opened.source) {
    ++stats_.refused;
  } else {
    found->second.queue_pair->receive(*packet, now);
    deadline_ = std::min(deadline_, found->second.queue_pair->deadline());
  }
}

void RdmaEndpoint::transmit(Time now) {
  if (blocked_ || retry_at_ != kNever || !flush(now)) return;
  for (bool more = true; more;) {
    more = false;
    for (auto& [number, connection] : connections_) {
      if (!connection.queue_pair) continue;
      more = fill_slots(connection, now) || more;
      deadline_ = std::min(deadline_, connection.queue_pair->deadline());
    }
    if (!flush(now)) return;
  }
}

/// Writes a queue pair's packets into free slots. Returns true if the queue pair may have more.
///
/// Clearances and acknowledgements overtake data in the interface's queue: behind 20 ms of data, they would
/// leave both peers' links idle. A request never overtakes another request of its queue pair.
bool RdmaEndpoint::fill_slots(Connection& connection, Time now) {
  roce::Packet packet;
  if (socket_->room() == 0) return true;
  const std::size_t burst_bytes = socket_->kernel_cuts() ? options_.burst_bytes : 0;
  if (connection.queue_pair->requester().idle()) connection.in_order = false;
  bool any = connection.queue_pair->next(packet, now);
  while (any) {
    roce::Burst burst(connection.path, next_ip_id_, socket_->slot(), burst_bytes);
    const bool last_slot = socket_->room() == 1;
    bool answers = true;
    do {
      burst.append(packet);
      answers = answers && packet.opcode == roce::Opcode::kAcknowledge;
      // A packet that does not fit into the burst needs another slot immediately.
      any = !last_slot && connection.queue_pair->next(packet, now);
    } while (any && burst.takes(packet));
    const auto [size, offload] = burst.close();
    const bool may_pass = answers || !connection.in_order;
    if (!may_pass || !socket_->commit_urgent(size, offload)) {
      socket_->commit(size, offload);
      connection.in_order = connection.in_order || !answers;
    }
    next_ip_id_ = static_cast<std::uint16_t>(next_ip_id_ + burst.count());
    stats_.frames_sent += burst.count();
    stats_.bytes_sent += size + (burst.count() - 1) * roce::kFrameHeaderSize;
    if (last_slot) return true;
  }
  return false;
}

bool RdmaEndpoint::flush(Time now) {
  const FrameSocket::Sent sent = socket_->flush();
  stats_.segmentation_refused = refused_before_ + socket_->refused_cuts();
  blocked_ = sent == FrameSocket::Sent::kBlocked;
  retry_at_ = sent == FrameSocket::Sent::kNoBuffers ? now + kFullQueueRetry : kNever;
  deadline_ = std::min(deadline_, retry_at_);
  return sent == FrameSocket::Sent::kAll;
}

void RdmaEndpoint::expire(Time now) {
  if (retry_at_ <= now) retry_at_ = kNever;
  deadline_ = retry_at_;
  for (auto& [number, connection] : connections_) {
    if (!connection.queue_pair) continue;
    if (connection.queue_pair->deadline() <= now) connection.queue_pair->expire(now);
    deadline_ = std::min(deadline_, connection.queue_pair->deadline());
  }
}

}  // namespace railweave
