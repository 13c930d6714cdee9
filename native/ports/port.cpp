// SPDX-License-Identifier: Apache-2.0
#include "ports/port.hpp"

#include <net/if.h>
#include <sys/ioctl.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <system_error>
#include <utility>

#include "core/headers.hpp"
#include "core/segments.hpp"
#include "core/socket_buffer.hpp"

namespace railweave::ports {

namespace {

// How often a full queue behind the socket may refuse a frame, at intervals of a millisecond, before the
// frame is dropped. A frame larger than that queue must not block later frames.
constexpr int kMaxRefusals = 100;

// Send buffer of a socket with a limited queue in the kernel. The kernel doubles this number, and counts a
// full frame as about 2,300 bytes. A blocked sender wakes when half of the buffer is free. The first size is
// the default of the kernel and of BMv2.
constexpr int kFirstSendBuffer = 104 << 10;
constexpr int kLeastSendBuffer = 4 << 10;
constexpr Duration kFastDrain = 2 * kMillisecond;   // time for half a buffer: a larger buffer may be faster
constexpr Duration kSlowDrain = 10 * kMillisecond;  // time for half a buffer: a smaller buffer is as fast

bool is_up(const std::string& interface, int fd) {
  ifreq request{};
  interface.copy(request.ifr_name, IFNAMSIZ - 1);
  return ioctl(fd, SIOCGIFFLAGS, &request) == 0 && (request.ifr_flags & IFF_UP) &&
         (request.ifr_flags & IFF_RUNNING);
}

}  // namespace

Port::Port(std::uint16_t number, std::string interface, const OutputLimits& limits)
    : number_(number), interface_(std::move(interface)) {
  OutputLimits own = limits;
  if (interface_.starts_with(kSharedPrefix)) own.super_packet_bytes = 0;  // no kernel would cut super-packets
  for (std::size_t i = 0; i < limits.priority_queues; ++i) queues_.emplace_back(own);
}

void Port::open() {
  if (interface_.starts_with(kSharedPrefix)) {
    link_ = std::make_unique<SharedLink>(interface_);
    up_ = true;
    return;
  }
  const unsigned index = if_nametoindex(interface_.c_str());
  if (index == 0) raise_errno("interface " + interface_);
  socket_ = open_packet_socket(interface_, index);
  if (limited_) limit_kernel_queue(true);
  index_ = index;
  up_ = is_up(interface_, fd());
}

void Port::limit_kernel_queue(bool on) {
  limited_ = on;
  blocked_at_ = 0;
  send_buffer_ = on ? kFirstSendBuffer : kSendBufferBytes;
  set_buffer(fd(), kSendBufferOptions, send_buffer_);
}

/// Adapts the send buffer to the time that its first half took to leave.
void Port::size_kernel_queue(Duration drained) {
  if (drained < kFastDrain) send_buffer_ = std::min(2 * send_buffer_, kSendBufferBytes);
  if (drained > kSlowDrain) send_buffer_ = std::max(send_buffer_ / 2, kLeastSendBuffer);
  set_buffer(fd(), kSendBufferOptions, send_buffer_);
}

Port::Change Port::refresh() {
  if (link_) return Change::kNone;
  const unsigned index = if_nametoindex(interface_.c_str());
  if (socket_ && index == index_) {
    up_ = is_up(interface_, fd());
    return Change::kNone;
  }
  const bool was_open = static_cast<bool>(socket_);
  socket_.reset();
  up_ = false;
  if (index != 0) {
    try {
      open();
      return Change::kReopened;
    } catch (const std::system_error&) {  // the interface has gone again: another event follows
      socket_.reset();
    }
  }
  return was_open ? Change::kGone : Change::kNone;
}

void Port::emit(const engine::Pieces& packet) {
  if (packet.size() < kEthernetSize) return counters.tx_refused.add(1);
  OutputQueue& queue = queues_.at(packet.priority);
  const bool open = socket_ || link_;
  bool queued = open && queue.push(packet);
  // A large batch may fill this queue although the socket still has room.
  if (open && !queued && !waiting && !retry && flush() == Flush::kDone) queued = queue.push(packet);
  if (!queued) counters.tx_dropped.add(1);
  dirty = true;
}

void Port::drop_front(OutputQueue& queue, std::span<const OutputFrame> frames, Count& reason) {
  std::size_t packets = 0;
  for (const OutputFrame& frame : frames) packets += frame.packets;
  reason.add(packets);
  queue.pop(frames.size());
}

/// Writes the packets into which a sent frame is cut.
void Port::capture(OutputQueue& queue, const OutputFrame& frame) {
  const std::byte* data = queue.data(frame);
  Offload offload;
  std::memcpy(&offload, data, sizeof offload);
  std::vector<std::byte> copy(data + sizeof offload, data + frame.size);  // packets are cut in place
  Segments segments(copy, offload);
  const Time at = now<std::chrono::system_clock>();
  while (const auto packet = segments.next()) out.capture->add(*packet, at);
}

/// Like `send_batch`. A full shared link counts as a full queue behind a socket.
int Port::send(OutputQueue& queue, std::span<const OutputFrame> frames) {
  if (!link_) return socket_ ? send_batch(fd(), queue, frames) : -ENETDOWN;
  int sent = 0;
  for (const OutputFrame& frame : frames) {
    const Bytes bytes = Bytes(queue.data(frame), frame.size).subspan(sizeof(Offload));
    const int refusal = bytes.size() > SharedLink::kMaxFrame ? -EMSGSIZE : link_->send(bytes) ? 0 : -ENOBUFS;
    if (refusal != 0) return sent != 0 ? sent : refusal;
    ++sent;
  }
  return sent;
}

Port::Flush Port::flush() {
  dirty = false;
  if (blocked_at_ != 0)
    size_kernel_queue(now<std::chrono::steady_clock>() - std::exchange(blocked_at_, Time{0}));
  for (auto queue = queues_.rbegin(); queue != queues_.rend(); ++queue) {
    if (const Flush result = flush(*queue); result != Flush::kDone) return result;
  }
  return Flush::kDone;
}

Port::Flush Port::flush(OutputQueue& queue) {
  while (!queue.empty()) {
    const auto frames = queue.frames();
    const int sent = send(queue, frames);
    if (sent > 0) {
      refusals_ = 0;
      const auto gone = frames.first(static_cast<std::size_t>(sent));
      for (const OutputFrame& frame : gone) {
        counters.tx_frames.add(1);
        counters.tx_packets.add(frame.packets);
        counters.tx_bytes.add(frame.wire_bytes());
        counters.tx_rewritten.add(frame.rewritten);
        if (out.capture) [[unlikely]]
          capture(queue, frame);
      }
      queue.pop(gone.size());
      continue;
    }
    switch (-sent) {
      case EAGAIN:
        if (limited_) blocked_at_ = now<std::chrono::steady_clock>();
        return Flush::kBlocked;
      case ENOBUFS:
        if (++refusals_ < kMaxRefusals) return Flush::kLater;
        drop_front(queue, frames.first(1), counters.tx_dropped);
        refusals_ = 0;
        break;
      case EINTR:
        break;
      case ENETDOWN:
      case ENXIO:
      case ENODEV:
        drop_front(queue, frames, counters.tx_dropped);
        break;
      default:  // EMSGSIZE, EINVAL: an invalid frame
        drop_front(queue, frames.first(1), counters.tx_refused);
    }
  }
  return Flush::kDone;
}

void Port::clear_error() const {
  int error = 0;
  socklen_t size = sizeof error;
  getsockopt(fd(), SOL_SOCKET, SO_ERROR, &error, &size);
}

}  // namespace railweave::ports
