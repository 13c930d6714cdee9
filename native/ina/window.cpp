// SPDX-License-Identifier: Apache-2.0
#include "ina/window.hpp"

#include <algorithm>
#include <cmath>

#include "core/lot.hpp"

namespace railweave::ina {
namespace {

constexpr Duration kClockGranularity = kMillisecond;
constexpr Duration kMostLate = 50 * kMillisecond;
constexpr std::uint32_t kLeastTarget = 8;  // chunks that even a slow link's queue may hold

}  // namespace

Window::Window(const WindowOptions& options)
    : options_(options),
      lot_(options.packet_time > 0 ? std::max<Duration>(kPacingQuantum / options.packet_time, 1) : 1),
      size_(std::clamp(std::min(options.initial, target(0)), options.least, options.most)) {}

std::uint32_t Window::target(Time now) const {
  if (options_.packet_time == 0) return options_.initial;
  const Duration queue = options_.queue_target + lateness_.get(now);
  return std::max(static_cast<std::uint32_t>(queue / options_.packet_time), kLeastTarget);
}

bool Window::open(std::uint64_t chunk, std::uint64_t held) {
  const std::uint64_t into = chunk % lot_;
  // At most half a window. Otherwise less than a lot could be in flight, and no lot would follow.
  const std::uint64_t rest = std::clamp<std::uint64_t>(lot_ - into, 1, std::max(size_ / 2, 1u));
  full_ = held + (into == 0 || full_ ? rest : 1) > size_;
  limited_ = limited_ || full_;
  return !full_;
}

Duration Window::rto(Time now) const {
  // On a shared link, another group may add its own queue target at any time.
  const Duration others = options_.packet_time > 0 ? options_.queue_target : 0;
  const Duration estimate =
      round_trip_.measured()
          ? round_trip_.smoothed() + std::max(4 * round_trip_.variation(), kClockGranularity + others)
          : options_.initial_rto;
  const Duration rto = std::clamp(std::max({estimate, lateness_.get(now), options_.longest_wait}),
                                  options_.min_rto, options_.max_rto);
  return std::min(rto << backed_off_, options_.max_rto);
}

void Window::back_off(Time now) {
  if (rto(now) < options_.max_rto) ++backed_off_;
}

void Window::late(Duration gap, Duration rtt, Time now) {
  // A new group may put its target into the queue at once, and a lot more while its window grows.
  const Duration others = options_.queue_target + 2 * kPacingQuantum;
  const Duration late = std::min(gap, rtt - round_trip_.smoothed() - options_.queue_target);
  if (gap > others && late > 0) lateness_.add(std::min(late, kMostLate), now);
}

void Window::path_sample(Duration rtt) { base_ = std::min(base_, rtt); }

void Window::sample(Duration rtt, std::uint64_t sent, std::uint64_t next, Time now) {
  if (!round_trip_.measured()) round_trip_.sample(rtt);
  base_ = std::min(base_, rtt);
  round_least_ = std::min(round_least_, rtt);
  if (sent < round_end_) return;
  end_round(now);
  round_end_ = next;
}

/// Goes half-way to K^2 / q, because the queue reacts one round later. Half a step neither swings nor lags.
std::uint32_t Window::wanted(Time now) const {
  if (options_.packet_time == 0) return 2 * size_;
  const std::uint32_t held = target(now);
  // Only long paths need more than the queue may hold, and they can wait. With fast growth, others would find
  // the queue full.
  const std::uint32_t growth = size_ < held ? std::min(2 * size_, held) : size_ + std::max(size_ / 8, 1u);
  const Duration path = std::min(base_, options_.longest_path);
  const auto queued = static_cast<double>(std::max<Duration>(round_least_ - path, 1));
  const double fitting = static_cast<double>(options_.packet_time) / queued * held * held;
  return static_cast<std::uint32_t>(std::min<double>(growth, std::round((size_ + fitting) / 2)));
}

void Window::end_round(Time now) {
  round_trip_.sample(round_least_);
  const std::uint32_t next = wanted(now);
  // A window that was not full has not shown how a larger one would do.
  if (limited_ || next < size_) size_ = std::clamp(next, options_.least, options_.most);
  limited_ = false;
  round_least_ = kNever;
}

}  // namespace railweave::ina
