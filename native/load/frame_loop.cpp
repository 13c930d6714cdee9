// SPDX-License-Identifier: Apache-2.0
#include "load/frame_loop.hpp"

#include <poll.h>
#include <sched.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <cerrno>

#include "core/descriptor.hpp"
#include "core/offload.hpp"
#include "loop/event_loop.hpp"
#include "ports/packet_socket.hpp"

namespace railweave::load {

namespace {

constexpr unsigned kBatch = 64;                     // frames per system call
constexpr Duration kLostAfter = 60 * kMillisecond;  // far longer than any switch takes for a window
constexpr int kWaitMs = 5;

/// Sends copies of one frame in batches.
class Sender {
 public:
  Sender(int fd, Bytes frame)
      : fd_(fd),
        pieces_{iovec{&offload_, sizeof offload_},
                iovec{const_cast<std::byte*>(frame.data()), frame.size()}} {
    for (mmsghdr& message : messages_) {
      message.msg_hdr.msg_iov = pieces_.data();
      message.msg_hdr.msg_iovlen = pieces_.size();
    }
  }
  Sender(const Sender&) = delete;
  Sender& operator=(const Sender&) = delete;

  /// Sends at most `count` frames. Returns the number that the socket accepted.
  unsigned send(unsigned count) {
    const int sent = sendmmsg(fd_, messages_.data(), std::min(count, kBatch), MSG_DONTWAIT);
    if (sent >= 0) return static_cast<unsigned>(sent);
    if (errno != EAGAIN && errno != ENOBUFS && errno != EINTR) raise_errno("sending frames");
    return 0;
  }

 private:
  int fd_;
  Offload offload_{};
  std::array<iovec, 2> pieces_;
  std::array<mmsghdr, kBatch> messages_{};
};

/// From one packet socket to another.
struct Sockets {
  Sender sender;
  int in;

  unsigned send(unsigned count) { return sender.send(count); }
  int receive(ports::ReceiveBatch& batch) const { return std::max(batch.receive(in), 0); }
  void wait() const {
    pollfd polled{in, POLLIN, 0};
    poll(&polled, 1, kWaitMs);
  }
};

/// From one shared link to another.
struct Links {
  ports::SharedLink& out;
  ports::SharedLink& in;
  Bytes frame;

  unsigned send(unsigned count) const {
    unsigned sent = 0;
    while (sent < std::min(count, kBatch) && out.send(frame)) ++sent;
    return sent;
  }
  int receive(ports::ReceiveBatch& batch) const { return batch.receive(in); }
  static void wait() { sched_yield(); }
};

template <typename Path>
FrameCounts loop(Path&& path, Bytes expected, unsigned window, Duration duration) {
  ports::ReceiveBatch batch;
  FrameCounts counts;
  unsigned in_flight = 0;
  const Time begin = EventLoop::now();
  Time at = begin, heard = begin;
  while (at - begin < duration) {
    const unsigned sent = in_flight < window ? path.send(window - in_flight) : 0;
    in_flight += sent;
    const int received = path.receive(batch);
    for (unsigned i = 0; i < static_cast<unsigned>(received); ++i) {
      const Bytes packet = batch.frame(i);
      if (packet.size() != expected.size()) continue;
      ++(std::equal(packet.begin(), packet.end(), expected.begin()) ? counts.right : counts.wrong);
      if (in_flight > 0) --in_flight;
      heard = at;
    }
    if (sent == 0 && received == 0) path.wait();
    at = EventLoop::now();
    if (at - heard > kLostAfter) {
      counts.lost += in_flight;
      in_flight = 0;
      heard = at;
    }
  }
  counts.seconds = static_cast<double>(at - begin) / kSecond;
  return counts;
}

}  // namespace

FrameCounts loop_frame(int out, int in, Bytes frame, Bytes expected, unsigned window, Duration duration) {
  return loop(Sockets{.sender = Sender(out, frame), .in = in}, expected, window, duration);
}

FrameCounts loop_frame(ports::SharedLink& out, ports::SharedLink& in, Bytes frame, Bytes expected,
                       unsigned window, Duration duration) {
  return loop(Links{out, in, frame}, expected, window, duration);
}

}  // namespace railweave::load
