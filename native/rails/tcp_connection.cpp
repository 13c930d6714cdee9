// SPDX-License-Identifier: Apache-2.0
#include "rails/tcp_connection.hpp"

#include <sys/socket.h>
#include <sys/uio.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <utility>
#include <variant>

#include "core/crc32.hpp"

namespace railweave {
namespace {

constexpr std::size_t kFramesPerWrite = 8;
constexpr std::size_t kBytesPerTurn = 1 << 20;  // then other handlers and timers run

std::size_t consume(std::size_t& from, std::size_t size) {
  const std::size_t taken = std::min(from, size);
  from -= taken;
  return taken;
}

}  // namespace

TcpConnection::TcpConnection(EventLoop& loop, const CallCheck& check, int peer, std::string name,
                             Descriptor socket, TransportListener& listener, const Liveness& liveness,
                             const Key& own_key, const Key& key)
    : loop_(loop),
      check_(check),
      peer_(peer),
      name_(std::move(name)),
      socket_(std::move(socket)),
      listener_(listener),
      liveness_(liveness),
      heard_at_(EventLoop::now()),
      spoke_at_(heard_at_),
      codes_(own_key),
      reader_(key) {
  loop_.watch(socket_.get(), interest_, *this);
}

TcpConnection::~TcpConnection() {
  if (watched_) loop_.unwatch(socket_.get());
}

void TcpConnection::on_ready(std::uint32_t events, Time now) {
  if (events & EPOLLOUT) {
    blocked_ = false;
    flush(now);
  }
  if (dead_) return;
  if (events & ~EPOLLOUT) drained_ = false;
  if (parked_ && (events & (EPOLLHUP | EPOLLERR))) {  // no more data will come: no events needed
    watched_ = false;
    return loop_.unwatch(socket_.get());
  }
  if (parked_ && (events & EPOLLIN)) {
    paused_ = true;
  } else if (events & ~EPOLLOUT) {
    receive(now);
  }
  set_interest();
}

// While a message is parked, later data stay in the kernel. TCP's flow control then slows the sender down.
void TcpConnection::set_interest() {
  const std::uint32_t wanted = (paused_ ? 0u : EPOLLIN) | (blocked_ ? EPOLLOUT : 0u);
  if (dead_ || !watched_ || wanted == interest_) return;
  interest_ = wanted;
  loop_.rewatch(socket_.get(), interest_, *this);
}

// ---------------------------------------------------------------- sending

void TcpConnection::post_send(Bytes data, Time now) {
  if (dead_ || aborted_) return;
  if (peer_left_) return fail(FailureKind::kPeerLost, "has closed its communicator", now);
  out_.push_back({.type = FrameType::kData,
                  .header = header_of(FrameType::kData, data, check_.label()),
                  .data = data,
                  .completes = true,
                  .owned = {}});
  flush(now);
}

FrameHeaderBytes TcpConnection::header_of(FrameType type, Bytes payload, const MessageLabel& label) {
  const std::uint32_t crc = type == FrameType::kData ? ~crc32_update(kCrcStart, payload) : 0;
  FrameHeaderBytes header = encode(
      {.type = type, .length = static_cast<std::uint32_t>(payload.size()), .crc = crc, .label = label});
  set_code(header, type == FrameType::kAbort ? payload : Bytes{}, codes_);
  return header;
}

void TcpConnection::enqueue(FrameType type, std::vector<std::byte> payload, Time now,
                            const MessageLabel& label) {
  if (dead_ || sent_goodbye_) return;
  Outgoing& frame = out_.emplace_back();
  frame.type = type;
  frame.header = header_of(type, payload, label);
  frame.owned = std::move(payload);
  frame.data = frame.owned;
  flush(now);
}

void TcpConnection::flush(Time now) {
  if (flushing_ || blocked_) return;
  flushing_ = true;
  while (!dead_ && !blocked_ && !out_.empty() && send_some(now)) {
  }
  flushing_ = false;
  if (sent_goodbye_ && out_.empty() && !dead_) shutdown(socket_.get(), SHUT_WR);
}

bool TcpConnection::send_some(Time now) {
  std::array<iovec, 2 * kFramesPerWrite> parts;
  std::size_t used = 0;
  for (std::size_t i = 0; i < std::min(out_.size(), kFramesPerWrite); ++i) {
    Outgoing& frame = out_[i];
    const std::size_t head = std::min(frame.offset, frame.header.size());
    const std::size_t body = frame.offset - head;
    if (head < frame.header.size()) parts[used++] = {frame.header.data() + head, frame.header.size() - head};
    parts[used++] = {const_cast<std::byte*>(frame.data.data()) + body, frame.data.size() - body};
  }
  msghdr message{};
  message.msg_iov = parts.data();
  message.msg_iovlen = used;
  const ssize_t written = sendmsg(socket_.get(), &message, MSG_NOSIGNAL | MSG_DONTWAIT);
  if (written < 0 && (errno == EAGAIN || errno == EINTR)) {
    blocked_ = errno == EAGAIN;
    set_interest();
    return true;
  }
  if (written < 0) {
    // The peer's last frames may give the reason.
    const int error = errno;
    drained_ = false;
    if (!receiving_) receive(now);
    if (!dead_) fail_with(error, now);
    return false;
  }
  spoke_at_ = now;
  written_ += static_cast<std::uint64_t>(written);
  int completed = 0;
  for (std::size_t left = static_cast<std::size_t>(written); !out_.empty();) {
    Outgoing& frame = out_.front();
    const std::size_t data_before = frame.data_sent();
    frame.offset += consume(left, frame.size() - frame.offset);
    count(frame, data_before);
    if (frame.offset < frame.size()) break;
    completed += frame.completes;
    out_.pop_front();
  }
  for (; completed > 0 && !aborted_; --completed) listener_.sent(peer_, now);
  return true;
}

void TcpConnection::count(const Outgoing& frame, std::size_t data_before) {
  if (frame.type == FrameType::kData) {
    sent_.payload += frame.data_sent() - data_before;
  } else if (frame.offset == frame.size()) {  // a small frame counts as one packet
    const bool heartbeat = frame.type == FrameType::kHeartbeat;
    (heartbeat ? sent_.heartbeats : sent_.control) += frame.size() + kTcpHeaders;
  }
}

void TcpConnection::add_counts(RailStats& stats) const {
  const std::uint64_t left = add_wire_counts(socket_, dead_, stats);
  stats.sent += sent_;
  // Bytes that the socket took and then dropped were payload.
  stats.sent.payload -= std::min(sent_.payload, written_ - std::min(written_, left));
}

// A partly sent frame must be completed. Otherwise the peer would read the next frame as the rest of this
// frame. A code depends on the frame's number, so the frames behind dropped frames get new codes.
void TcpConnection::drop_sends() {
  const auto waits = [](const Outgoing& frame) { return frame.offset == 0; };
  codes_.take_back(static_cast<std::size_t>(std::ranges::count_if(out_, waits)));
  std::erase_if(out_, [&](const Outgoing& frame) { return frame.completes && waits(frame); });
  for (Outgoing& frame : out_)
    if (waits(frame)) set_code(frame.header, frame.type == FrameType::kAbort ? frame.data : Bytes{}, codes_);
  for (Outgoing& frame : out_) {
    if (!std::exchange(frame.completes, false)) continue;
    frame.owned.assign(frame.data.begin(), frame.data.end());
    frame.data = frame.owned;
  }
}

void TcpConnection::announce(const Failure& failure, Time now) {
  drop_sends();
  enqueue(FrameType::kAbort, encode_failure(failure), now);
}

void TcpConnection::close(Time now) {
  enqueue(FrameType::kGoodbye, {}, now);
  sent_goodbye_ = true;
  flush(now);
}

void TcpConnection::abort() {
  drop_sends();
  aborted_ = true;
  posted_.clear();
  reader_.discard();
  parked_.reset();
  paused_ = false;
  set_interest();
}

void TcpConnection::halt() {
  dead_ = aborted_ = true;
  out_.clear();
  posted_.clear();
  reader_.discard();
  if (std::exchange(watched_, false)) loop_.unwatch(socket_.get());
  reset_on_close(socket_);
}

// ---------------------------------------------------------------- receiving

void TcpConnection::check_waiting(Time now) {
  if (parked_ && !receiving_) receive(now);
}

void TcpConnection::post_receive(MutableBytes into, Time now) {
  if (dead_ || aborted_) return;
  posted_.push_back({.label = check_.label(), .into = into});
  if (!receiving_ && (parked_ || peer_left_)) receive(now);
  paused_ = paused_ && parked_;
  set_interest();
}

// A posted receive may call this function again in the same turn. kBytesPerTurn bounds the sum of all calls.
void TcpConnection::receive(Time now) {
  receiving_ = true;
  if (std::exchange(turn_, now) != now) read_in_turn_ = 0;
  while (take_events(now) && (!watched_ || (!drained_ && read_in_turn_ < kBytesPerTurn))) {
    const std::size_t size = read_some(now);
    read_in_turn_ += size;
    if (size == 0) {
      take_events(now);
      break;
    }
  }
  receiving_ = false;
  if (peer_left_ && !posted_.empty() && !dead_ && !aborted_) {
    fail(FailureKind::kPeerLost, "has closed its communicator", now);
  }
}

std::size_t TcpConnection::read_some(Time now) {
  std::array<iovec, 2> parts;
  std::size_t used = 0, asked = 0;
  for (const MutableBytes room : reader_.room()) {
    if (!room.empty()) parts[used++] = {.iov_base = room.data(), .iov_len = room.size()};
    asked += room.size();
  }
  msghdr message{};
  message.msg_iov = parts.data();
  message.msg_iovlen = used;
  const ssize_t size = recvmsg(socket_.get(), &message, MSG_DONTWAIT);
  drained_ = size != 0 && size < static_cast<ssize_t>(asked);  // epoll reports later data
  if (size == 0) end_of_stream(now);
  if (size < 0 && errno != EAGAIN && errno != EINTR) fail_with(errno, now);
  if (size <= 0) return 0;
  heard_at_ = now;
  reader_.filled(static_cast<std::size_t>(size));
  return static_cast<std::size_t>(size);
}

// Returns true if more bytes are wanted.
bool TcpConnection::take_events(Time now) {
  parked_.reset();
  while (!dead_) {
    const auto event = reader_.next();
    if (!event) return !peer_left_ || watched_;
    if (!std::visit([&](const auto& what) { return take(what, now); }, *event)) return false;
  }
  return false;
}

// Returns false if the message has no place, now or ever.
bool TcpConnection::take(const TcpReader::MessageBegins& message, Time now) {
  if (aborted_) {
    reader_.place({});
    return true;
  }
  const MessageLabel& theirs = message.label;
  if (posted_.empty()) {
    if (const auto failure = check_.unmet(peer_, theirs)) {
      fail(*failure, now);
    } else {
      parked_ = theirs;
    }
    return false;
  }
  const Receive& receive = posted_.front();
  if (theirs != receive.label || message.size != receive.into.size()) {
    Failure failure = check_.differing(peer_, receive.label, theirs);
    if (theirs == receive.label) {
      failure.message = name_ + " sends " + std::to_string(message.size) + " bytes where this rank expects " +
                        std::to_string(receive.into.size()) + ": all ranks must use the same options";
    }
    fail(failure, now);
    return false;
  }
  reader_.place(receive.into);
  return true;
}

bool TcpConnection::take(const TcpReader::MessageEnds&, Time now) {
  if (aborted_) return true;
  posted_.pop_front();
  listener_.received(peer_, now);
  return true;
}

bool TcpConnection::take(const TcpReader::Heartbeat& heartbeat, Time now) {
  if (heartbeat.awaited.slice_count == 0) return true;
  if (const auto failure = check_.differing(peer_, heartbeat.awaited)) fail(*failure, now);
  return true;
}

bool TcpConnection::take(const TcpReader::PeerFailed& failed, Time now) {
  if (failed.failure) {
    fail(*failed.failure, now);
  } else {
    fail(FailureKind::kRailDown, "gives up without a reason", now);
  }
  return true;
}

bool TcpConnection::take(const TcpReader::Goodbye&, Time now) {
  peer_left_ = true;
  listener_.left(peer_, now);
  return true;
}

bool TcpConnection::take(const TcpReader::Malformed&, Time now) {
  fail(FailureKind::kRailDown,
       "sends what is no frame of this protocol, or has a wrong code or checksum: a link damages packets, or "
       "a "
       "stranger forges them",
       now);
  return false;
}

// ---------------------------------------------------------------- failure

void TcpConnection::end_of_stream(Time now) {
  if (!peer_left_) return fail_silent(true, "has closed the connection", now);
  if (std::exchange(watched_, false)) loop_.unwatch(socket_.get());
}

void TcpConnection::fail_with(int error, Time now) {
  fail_silent(closed_by_peer(error), std::string("is gone: ") + std::strerror(error), now);
}

void TcpConnection::fail_silent(bool by_peer, const std::string& message, Time now) {
  fail({.kind = FailureKind::kSilent, .rank = peer_, .message = name_ + " " + message, .by_peer = by_peer},
       now);
}

void TcpConnection::fail(FailureKind kind, const std::string& message, Time now) {
  fail({.kind = kind, .rank = peer_, .message = name_ + " " + message}, now);
}

void TcpConnection::fail(const Failure& failure, Time now) {
  const bool gone = failure.kind == FailureKind::kPeerLost || failure.kind == FailureKind::kSilent;
  const bool lost = gone && failure.rank == peer_;
  if (lost || aborted_) {  // nothing more can be sent to this peer
    dead_ = true;
    if (std::exchange(watched_, false)) loop_.unwatch(socket_.get());
  }
  if (!aborted_) listener_.failed(failure, now);
}

}  // namespace railweave
