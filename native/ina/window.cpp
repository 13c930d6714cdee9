// SPDX-License-Identifier: Apache-2.0
#include "ina/window.hpp"

#include <algorithm>
#include <cstdlib>

namespace railweave::ina {
namespace {

constexpr Duration kClockGranularity = kMillisecond;
constexpr std::uint32_t kAdditiveIncrease = 4;  // chunks per round
constexpr double kLeastFactor = 0.5;            // at most this much is kept of a window far over its target

}  // namespace

Window::Window(const WindowOptions& options)
    : options_(options), size_(std::clamp(options.initial, options.least, options.most)) {}

Duration Window::rto() const {
  const Duration estimate =
      smoothed_ == 0 ? options_.initial_rto : smoothed_ + std::max(4 * variation_, kClockGranularity);
  const Duration rto = std::clamp(estimate, options_.min_rto, options_.max_rto);
  return std::min(rto << backed_off_, options_.max_rto);
}

void Window::back_off() {
  if (rto() < options_.max_rto) ++backed_off_;
}

void Window::smooth(Duration rtt) {
  if (smoothed_ == 0) {
    smoothed_ = std::max<Duration>(rtt, 1);
    variation_ = rtt / 2;
    return;
  }
  variation_ += (std::abs(smoothed_ - rtt) - variation_) / 4;
  smoothed_ = std::max<Duration>(smoothed_ + (rtt - smoothed_) / 8, 1);
}

void Window::path_sample(Duration rtt) { base_ = std::min(base_, rtt); }

void Window::sample(Duration rtt, std::uint64_t sent, std::uint64_t next) {
  if (smoothed_ == 0) smooth(rtt);
  base_ = std::min(base_, rtt);
  round_least_ = std::min(round_least_, rtt);
  if (sent < round_end_) return;
  end_round();
  round_end_ = next;
}

void Window::end_round() {
  smooth(round_least_);
  const Duration queued = round_least_ - base_;
  if (queued > options_.queue_target) {
    const double excess = static_cast<double>(queued - options_.queue_target) / static_cast<double>(queued);
    const double factor = std::max(kLeastFactor, 1.0 - excess / 2);
    size_ = std::max(static_cast<std::uint32_t>(size_ * factor), options_.least);
    starting_ = false;
  } else if (limited_) {
    size_ = std::min(starting_ ? 2 * size_ : size_ + kAdditiveIncrease, options_.most);
  }
  limited_ = false;
  round_least_ = kNever;
}

}  // namespace railweave::ina
