// SPDX-License-Identifier: Apache-2.0
#include "rails/endpoint_rail.hpp"

#include <sys/eventfd.h>

#include <algorithm>
#include <cstring>
#include <utility>

#include "core/headers.hpp"

namespace railweave {
namespace {

std::size_t bytes_of(const Slice& slice) { return tensor_bytes(slice.call, slice.count, slice.world_size); }

}  // namespace

EndpointRail::EndpointRail(EventLoop& loop, RailListener& listener)
    : Rail(&loop, listener), events_(loop), wake_(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)) {
  if (!wake_) raise_errno("eventfd");
}

// ---------------------------------------------------------------- the endpoint's thread

std::vector<EndpointWork> EndpointRail::take() {
  const std::lock_guard lock(mutex_);
  std::uint64_t count;
  [[maybe_unused]] const auto size = read(wake_.get(), &count, sizeof count);
  return std::exchange(work_, {});
}

template <typename Task>
void EndpointRail::post(std::uint32_t incarnation, Task task) {
  events_.post(
      [this, incarnation, task = std::move(task)] {
        {
          const std::lock_guard lock(mutex_);
          if (incarnation_ != incarnation) return;
        }
        task();
      },
      this);
}

bool EndpointRail::reserve(std::uint32_t incarnation, std::uint64_t position) {
  const std::lock_guard lock(mutex_);
  if (incarnation_ != incarnation) return false;
  position_ = std::max<std::uint64_t>({position_, position, 1});
  return true;
}

void EndpointRail::count(const EndpointTraffic& traffic) {
  const std::lock_guard lock(mutex_);
  for (auto each :
       {&EndpointTraffic::sent, &EndpointTraffic::sent_bytes, &EndpointTraffic::resent,
        &EndpointTraffic::resent_bytes, &EndpointTraffic::received, &EndpointTraffic::received_bytes})
    traffic_.*each += traffic.*each;
}

void EndpointRail::finish(std::uint32_t incarnation, std::vector<std::byte> result) {
  post(incarnation, [this, result = std::move(result)] { complete(result, EventLoop::now()); });
}

void EndpointRail::fail(std::uint32_t incarnation, std::string reason) {
  post(incarnation, [this, reason = std::move(reason)] {
    listener_.rail_failed({.kind = FailureKind::kRailDown, .rank = -1, .message = reason}, EventLoop::now());
  });
}

// ---------------------------------------------------------------- the loop's thread

void EndpointRail::put(EndpointWork work) {
  work_.push_back(std::move(work));
  const std::uint64_t one = 1;
  if (write(wake_.get(), &one, sizeof one) < 0 && errno != EAGAIN) raise_errno("eventfd");
}

void EndpointRail::do_start(const Slice& slice, Time now) {
  if (slices_.empty()) busy_since_ = now;
  slices_.push_back(slice);
  EndpointWork work{.kind = EndpointWork::Kind::kCall,
                    .incarnation = incarnation_.value(),  // only this thread changes it
                    .dtype = slice.call.dtype,
                    .op = slice.call.op,
                    .input = {slice.input, slice.input + bytes_of(slice)}};
  const std::lock_guard lock(mutex_);
  put(std::move(work));
}

void EndpointRail::complete(const std::vector<std::byte>& result, Time now) {
  if (slices_.empty()) return;
  const Slice slice = slices_.front();
  if (result.size() != bytes_of(slice)) {
    return listener_.rail_failed({.kind = FailureKind::kRailDown,
                                  .rank = -1,
                                  .message = "its endpoint returned " + std::to_string(result.size()) +
                                             " bytes: expected " + std::to_string(bytes_of(slice))},
                                 now);
  }
  slices_.pop_front();
  std::memcpy(slice.output, result.data(), result.size());
  ++stats_.slices;
  stats_.payload_bytes += result.size();
  stats_.busy += now - std::exchange(busy_since_, now);
  listener_.slice_done(slice.id, now);
}

void EndpointRail::drop() {
  if (!slices_.empty()) stats_.busy += EventLoop::now() - busy_since_;
  slices_.clear();
  const std::lock_guard lock(mutex_);
  work_.clear();
  if (incarnation_) put({.kind = EndpointWork::Kind::kHalt, .incarnation = *incarnation_});
  incarnation_.reset();
}

void EndpointRail::do_restart(const Restart& restart, Time) {
  const std::lock_guard lock(mutex_);
  if (!restart.bases.empty()) position_ = std::max(position_, restart.bases.front());
  incarnation_ = restart.incarnation;
  put({.kind = EndpointWork::Kind::kRestart, .incarnation = restart.incarnation, .position = position_});
}

std::vector<std::uint64_t> EndpointRail::do_next_chunks() const {
  const std::lock_guard lock(mutex_);
  return {position_};
}

RailStats EndpointRail::do_stats() const {
  RailStats stats = stats_;
  if (!slices_.empty()) stats.busy += EventLoop::now() - busy_since_;
  const std::lock_guard lock(mutex_);
  stats.packets_sent = traffic_.sent;
  stats.bytes_sent = traffic_.sent_bytes + kUdpHeaders * traffic_.sent;
  stats.sent.payload = traffic_.sent_bytes - traffic_.resent_bytes;
  stats.sent.resends = traffic_.resent_bytes + kUdpHeaders * traffic_.resent;
  stats.retransmissions = traffic_.resent;
  stats.packets_received = traffic_.received;
  stats.bytes_received = traffic_.received_bytes + kUdpHeaders * traffic_.received;
  return stats;
}

std::uint64_t EndpointRail::do_progress() const {
  const std::lock_guard lock(mutex_);
  return stats_.slices + traffic_.received;
}

}  // namespace railweave
