// SPDX-License-Identifier: Apache-2.0
#include "engine/cells.hpp"

#include <algorithm>
#include <stdexcept>

namespace railweave::engine {
namespace {

std::uint64_t tokens_until(const MeterRate& rate, std::uint64_t now_us) {
  return static_cast<std::uint64_t>(static_cast<double>(now_us) * rate.tokens_per_us);
}

}  // namespace

std::uint64_t Meter::execute(std::uint64_t cost, std::uint64_t now_us) {
  // The first bucket that is too empty gives the colour.
  for (std::size_t i = 0; i < buckets_.size(); ++i) {
    Bucket& bucket = buckets_[i];
    const std::uint64_t total = tokens_until(bucket.rate, now_us);
    bucket.tokens = std::min(bucket.tokens + (total - std::min(total, bucket.last)), bucket.rate.burst);
    bucket.last = total;
    if (bucket.tokens < cost) return buckets_.size() - i;
    bucket.tokens -= cost;
  }
  return 0;
}

void Meter::configure(std::span<const MeterRate> rates, std::uint64_t now_us) {
  buckets_.clear();
  for (std::size_t i = rates.size(); i-- > 0;) {
    buckets_.push_back({rates[i], rates[i].burst, tokens_until(rates[i], now_us)});
  }
}

Cells::Cells(const Plan& plan) : arrays_(plan.arrays), meter_plans_(plan.meters) {
  for (const auto size : plan.counters) counters.emplace_back(size);
  for (const auto& meter : plan.meters) meters.emplace_back(meter.size);
  for (const auto& bank : plan.banks) {
    bank_words_.push_back(bank.words);
    banks_.emplace_back(std::size_t{bank.rows} * bank.words);
  }
}

const RegisterPlan& Cells::checked(std::uint32_t array, std::uint64_t index) const {
  const RegisterPlan& plan = arrays_.at(array);
  if (index >= plan.size) throw std::out_of_range("register: index");
  return plan;
}

std::vector<std::uint64_t> Cells::read_register(std::uint32_t array, std::uint64_t index) {
  const RegisterPlan& plan = checked(array, index);
  const std::uint32_t* at = cell(plan, static_cast<std::uint32_t>(index));
  std::vector<std::uint64_t> words((plan.width + 63) / 64);
  for (std::size_t i = 0; i < words.size(); ++i) {
    words[i] = plan.width <= 32 ? at[0] : at[2 * i] | std::uint64_t{at[2 * i + 1]} << 32;
  }
  return words;
}

void Cells::write_register(std::uint32_t array, std::uint64_t index, std::span<const std::uint64_t> words) {
  const RegisterPlan& plan = checked(array, index);
  if (words.size() != (plan.width + 63) / 64) throw std::invalid_argument("register: width");
  std::uint32_t* at = cell(plan, static_cast<std::uint32_t>(index));
  for (std::size_t i = 0; i < words.size(); ++i) {
    const std::uint32_t kept = std::min<std::uint32_t>(plan.width - 64 * static_cast<std::uint32_t>(i), 64);
    const std::uint64_t value = words[i] & (~0ull >> (64 - kept));
    at[2 * i] = static_cast<std::uint32_t>(value);
    if (plan.width > 32) at[2 * i + 1] = static_cast<std::uint32_t>(value >> 32);
  }
}

void Cells::set_meter(std::uint32_t meter, std::uint64_t index, std::span<const MeterRate> rates,
                      std::uint64_t now_us) {
  Meter& cell = meters.at(meter).at(index);
  if (!rates.empty() && rates.size() != meter_plans_[meter].rates) {
    throw std::invalid_argument("meter: number of rates");
  }
  cell.configure(rates, now_us);
}

}  // namespace railweave::engine
