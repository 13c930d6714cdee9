// SPDX-License-Identifier: Apache-2.0
#include "load/generator.hpp"

#include <netinet/in.h>
#include <netinet/udp.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/uio.h>

#include <algorithm>
#include <cerrno>
#include <system_error>

#include "ina/packet.hpp"
#include "loop/event_loop.hpp"

namespace railweave::load {

namespace {

// Far longer than the slowest switch takes for a full window, so a repetition means a loss.
constexpr Duration kSilence = 60 * kMillisecond;
constexpr int kPollMs = 5;

/// A message with room for one 16- or 32-bit control value of UDP.
struct Message {
  msghdr header{};
  alignas(cmsghdr) std::array<std::byte, CMSG_SPACE(sizeof(int))> control{};

  explicit Message(std::span<iovec> pieces) {
    header.msg_iov = pieces.data();
    header.msg_iovlen = pieces.size();
  }

  void set_segment(std::uint16_t bytes) {
    header.msg_control = control.data();
    header.msg_controllen = CMSG_SPACE(sizeof bytes);
    cmsghdr* item = CMSG_FIRSTHDR(&header);
    item->cmsg_level = SOL_UDP;
    item->cmsg_type = UDP_SEGMENT;
    item->cmsg_len = CMSG_LEN(sizeof bytes);
    std::memcpy(CMSG_DATA(item), &bytes, sizeof bytes);
  }

  /// The size of each datagram in a joined message, or `otherwise`.
  std::size_t segment(std::size_t otherwise) {
    for (cmsghdr* item = CMSG_FIRSTHDR(&header); item != nullptr; item = CMSG_NXTHDR(&header, item)) {
      if (item->cmsg_level != SOL_UDP || item->cmsg_type != UDP_GRO) continue;
      int bytes = 0;
      std::memcpy(&bytes, CMSG_DATA(item), sizeof bytes);
      return static_cast<std::size_t>(std::max(bytes, 1));
    }
    return otherwise;
  }
};

}  // namespace

Generator::Generator(const Group& group, std::vector<int> fds, unsigned segments)
    : group_(group),
      numbers_(group.workers, group.lanes),
      segments_(segments),
      headers_(segments * ina::kHeaderBytes) {
  for (unsigned i = 0; i < fds.size(); ++i)
    workers_.push_back({Contributor(group_, numbers_, i), fds[i], {}});
}

Outcome Generator::run(Duration warm_up, Duration duration) {
  const Time begin = EventLoop::now(), counted = begin + warm_up, end = counted + duration;
  Time at = begin, counting_since = 0;
  for (Worker& worker : workers_) worker.heard = begin;
  while (at < end) {
    bool busy = false;
    for (Worker& worker : workers_) {
      busy |= send(worker);
      busy |= receive(worker, at);
      if (at - worker.heard > kSilence) {
        worker.contributor.repeat();
        worker.heard = at;
      }
    }
    if (!busy) await();
    at = EventLoop::now();
    if (counting_since == 0 && at >= counted) {
      counting_since = at;
      outcome_ = {.wrong = outcome_.wrong};
      for (const Worker& worker : workers_) outcome_.repeated -= worker.contributor.repeated();
    }
  }
  outcome_.seconds = static_cast<double>(at - counting_since) / kSecond;
  for (const Worker& worker : workers_) outcome_.repeated += worker.contributor.repeated();
  return outcome_;
}

/// Sends one super-packet. Returns false without a chunk to send, or if the socket is full.
bool Generator::send(Worker& worker) {
  if (worker.pending.count == 0) worker.pending = worker.contributor.next(segments_);
  const Run run = worker.pending;
  if (run.count == 0) return false;
  std::array<iovec, 2 * 128> pieces;
  for (unsigned i = 0; i < run.count; ++i) {
    std::byte* header = &headers_[i * ina::kHeaderBytes];
    worker.contributor.write_header(run.first + i, header);
    const Bytes lanes = worker.contributor.lanes(run.first + i);
    pieces[2 * i] = {header, ina::kHeaderBytes};
    pieces[2 * i + 1] = {const_cast<std::byte*>(lanes.data()), lanes.size()};
  }
  Message message{std::span<iovec>(pieces).first(2 * run.count)};
  if (run.count > 1) message.set_segment(static_cast<std::uint16_t>(ina::packet_bytes(group_.lanes)));
  if (sendmsg(worker.fd, &message.header, MSG_DONTWAIT) < 0) {
    if (errno == EAGAIN || errno == ENOBUFS || errno == EINTR || errno == ECONNREFUSED) return false;
    throw std::system_error(errno, std::generic_category(), "sending contributions");
  }
  worker.pending = {};
  return true;
}

bool Generator::receive(Worker& worker, Time now) {
  std::array<iovec, 1> pieces{iovec{buffer_.data(), buffer_.size()}};
  Message message{std::span<iovec>(pieces)};
  message.header.msg_control = message.control.data();
  message.header.msg_controllen = message.control.size();
  const ssize_t size = recvmsg(worker.fd, &message.header, MSG_DONTWAIT);
  if (size <= 0) return false;
  worker.heard = now;
  const auto received = static_cast<std::size_t>(size);
  take(worker, Bytes(buffer_).first(received), message.segment(received));
  return true;
}

void Generator::take(Worker& worker, Bytes datagrams, std::size_t size) {
  while (!datagrams.empty()) {
    const Bytes datagram = datagrams.first(std::min(size, datagrams.size()));
    datagrams = datagrams.subspan(datagram.size());
    switch (worker.contributor.receive(datagram)) {
      case Contributor::Answer::kRight:
        ++outcome_.right;
        break;
      case Contributor::Answer::kWrong:
        ++outcome_.wrong;
        break;
      case Contributor::Answer::kAgain:
        ++outcome_.again;
        break;
      case Contributor::Answer::kStranger:
        ++outcome_.strangers;
    }
  }
}

/// Waits for a result, at most kPollMs.
void Generator::await() const {
  std::vector<pollfd> polled;
  for (const Worker& worker : workers_) {
    const auto events = static_cast<short>(worker.pending.count ? POLLIN | POLLOUT : POLLIN);
    polled.push_back({worker.fd, events, 0});
  }
  poll(polled.data(), polled.size(), kPollMs);
}

}  // namespace railweave::load
