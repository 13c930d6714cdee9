// SPDX-License-Identifier: Apache-2.0
#include "ina/window.hpp"

#include <algorithm>
#include <cmath>

namespace railweave::ina {
namespace {

constexpr Duration kClockGranularity = kMillisecond;
constexpr std::uint32_t kLeastTarget = 8;  // chunks that even a slow link's queue may hold

std::uint32_t target(const WindowOptions& options) {
  if (options.packet_time == 0) return options.initial;
  return std::max(static_cast<std::uint32_t>(options.queue_target / options.packet_time), kLeastTarget);
}

}  // namespace

Window::Window(const WindowOptions& options)
    : options_(options),
      size_(std::clamp(std::min(options.initial, target(options)), options.least, options.most)) {}

Duration Window::rto() const {
  // On a shared link another group may put as much into the queue at any time.
  const Duration others = options_.packet_time > 0 ? options_.queue_target : 0;
  const Duration estimate =
      round_trip_.measured()
          ? round_trip_.smoothed() + std::max(4 * round_trip_.variation(), kClockGranularity + others)
          : options_.initial_rto;
  const Duration rto = std::clamp(estimate, options_.min_rto, options_.max_rto);
  return std::min(rto << backed_off_, options_.max_rto);
}

void Window::back_off() {
  if (rto() < options_.max_rto) ++backed_off_;
}

void Window::path_sample(Duration rtt) { base_ = std::min(base_, rtt); }

void Window::sample(Duration rtt, std::uint64_t sent, std::uint64_t next) {
  if (!round_trip_.measured()) round_trip_.sample(rtt);
  base_ = std::min(base_, rtt);
  round_least_ = std::min(round_least_, rtt);
  if (sent < round_end_) return;
  end_round();
  round_end_ = next;
}

/// Half-way to K^2 / q: the queue answers a round later, and so the step neither swings nor lags.
std::uint32_t Window::wanted() const {
  if (options_.packet_time == 0) return 2 * size_;
  const std::uint32_t held = target(options_);
  // More than the queue may hold is for long paths alone: these can wait, others would find the queue full.
  const std::uint32_t growth = size_ < held ? std::min(2 * size_, held) : size_ + std::max(size_ / 8, 1u);
  const Duration path = std::min(base_, options_.longest_path);
  const auto queued = static_cast<double>(std::max<Duration>(round_least_ - path, 1));
  const double fitting = static_cast<double>(options_.packet_time) / queued * held * held;
  return static_cast<std::uint32_t>(std::min<double>(growth, std::round((size_ + fitting) / 2)));
}

void Window::end_round() {
  round_trip_.sample(round_least_);
  const std::uint32_t next = wanted();
  // One that was not full has not shown how a larger one would do.
  if (limited_ || next < size_) size_ = std::clamp(next, options_.least, options_.most);
  limited_ = false;
  round_least_ = kNever;
}

}  // namespace railweave::ina
