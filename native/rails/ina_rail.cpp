// SPDX-License-Identifier: Apache-2.0
#include "rails/ina_rail.hpp"

#include <algorithm>
#include <stdexcept>
#include <variant>

namespace railweave {
namespace {

constexpr std::size_t kBatch = 128;                   // datagrams between two looks at the socket
constexpr int kBatchesPerTurn = 16;                   // then the other rails of the loop get theirs
constexpr Duration kMaxOccupancy = kMillisecond / 2;  // of a shaped link by one super-packet
constexpr std::size_t kWireHeaders = 14 + 20 + 8;
constexpr std::size_t kKernelOverhead = 3;  // the kernel charges a datagram up to so many times its size

/// Where no rate is given the link is taken to be fast: what delays packets then is CPUs, which a smaller
/// window would only idle. The group's slots still bound the queue.
ina::WindowOptions window_for(const InaRailOptions& options) {
  ina::WindowOptions window = options.window;
  if (options.rate_bps == 0) window.queue_target = kSecond;
  return window;
}

std::size_t super_packet_limit(std::uint64_t rate_bps, std::size_t packet_bytes) {
  if (rate_bps == 0) return ~std::size_t{0};
  const double bits = static_cast<double>(rate_bps) * kMaxOccupancy / kSecond;
  return static_cast<std::size_t>(bits / 8 / static_cast<double>(packet_bytes + kWireHeaders));
}

}  // namespace

InaRail::InaRail(std::size_t index, EventLoop& loop, const InaRailOptions& options, RailListener& listener)
    : index_(index),
      loop_(loop),
      options_(options),
      listener_(listener),
      socket_(options.address, 0, options.interface) {}

InaRail::~InaRail() {
  if (endpoint_) loop_.unwatch(socket_.fd());
}

void InaRail::attach(const InaGroup& group) {
  if (endpoint_) throw std::invalid_argument("the rail is attached to a group already");
  auto endpoint = std::make_unique<ina::Endpoint>(ina::EndpointOptions{.group = group.group,
                                                                       .child = group.child,
                                                                       .slots = group.slots,
                                                                       .lanes = group.lanes,
                                                                       .world_size = group.world_size,
                                                                       .window = window_for(options_)});
  const std::size_t packet = ina::packet_bytes(group.lanes);
  socket_.connect(group.virtual_address, ina::kUdpPort);
  socket_.set_super_packets(packet, super_packet_limit(options_.rate_bps, packet));
  socket_.set_buffers(std::size_t{2} * group.slots * packet * kKernelOverhead);
  unsent_.reserve(kBatch);
  loop_.watch(socket_.fd(), EPOLLIN, *this);
  endpoint_ = std::move(endpoint);
}

void InaRail::start(const Slice& slice, Time now) {
  if (!endpoint_)
    throw std::logic_error("an in-network rail must be attached to a group before slices start");
  if (slices_.empty()) busy_since_ = now;
  slices_.push_back(slice);
  endpoint_->start(slice);
  flush(now);
}

void InaRail::expire(Time now) {
  endpoint_->expire(now);
  flush(now);
  report(now);
}

void InaRail::abort() {
  if (endpoint_) endpoint_->abort();
  slices_.clear();
  unsent_.clear();
}

void InaRail::on_ready(std::uint32_t events, Time now) {
  if (events & EPOLLOUT) {
    blocked_ = false;
    loop_.rewatch(socket_.fd(), EPOLLIN, *this);
  }
  for (int i = 0; i < kBatchesPerTurn; ++i) {
    const bool more = socket_.receive([&](Bytes datagram) { endpoint_->receive(datagram, now); });
    flush(now);
    if (!more) break;
    now = EventLoop::now();
  }
  report(now);
}

void InaRail::flush(Time now) {
  while (push_unsent()) {
    while (unsent_.size() < kBatch) {
      const Bytes datagram = endpoint_->transmit(now);
      if (datagram.empty()) break;
      unsent_.push_back(datagram);
    }
    if (unsent_.empty()) return;
  }
}

/// False if the socket is full.
bool InaRail::push_unsent() {
  if (blocked_) return false;
  unsent_.erase(unsent_.begin(), unsent_.begin() + static_cast<std::ptrdiff_t>(socket_.send(unsent_)));
  if (unsent_.empty()) return true;
  blocked_ = true;
  loop_.rewatch(socket_.fd(), EPOLLIN | EPOLLOUT, *this);
  return false;
}

void InaRail::report(Time now) {
  while (auto event = endpoint_->poll()) {
    if (const auto* failure = std::get_if<Failure>(&*event)) {
      listener_.rail_failed(index_, *failure, now);
      continue;
    }
    const std::uint32_t op_index = std::get<ina::SliceDone>(*event).op_index;
    const auto slice = std::find_if(slices_.begin(), slices_.end(),
                                    [&](const Slice& s) { return s.call.op_index == op_index; });
    ++stats_.slices;
    stats_.payload_bytes += slice->count * item_size(slice->call.dtype);
    slices_.erase(slice);
    if (slices_.empty()) stats_.busy += now - busy_since_;
    listener_.slice_done(index_, op_index, now);
  }
}

RailStats InaRail::stats() const {
  RailStats stats = stats_;
  const DatagramCounts& counts = socket_.counts();
  stats.bytes_sent = counts.bytes_sent;
  stats.bytes_received = counts.bytes_received;
  stats.packets_sent = counts.datagrams_sent;
  stats.packets_received = counts.datagrams_received;
  if (endpoint_) {
    stats.retransmissions = endpoint_->stats().retransmissions;
    stats.duplicates = endpoint_->stats().duplicates;
    stats.malformed = endpoint_->stats().refused_in_all();
  }
  if (!slices_.empty()) stats.busy += EventLoop::now() - busy_since_;
  return stats;
}

}  // namespace railweave
