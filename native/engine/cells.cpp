// SPDX-License-Identifier: Apache-2.0
#include "engine/cells.hpp"

#include <algorithm>
#include <stdexcept>

namespace railweave::engine {
namespace {

std::uint64_t tokens_until(const MeterRate& rate, std::uint64_t now_us) {
  return static_cast<std::uint64_t>(static_cast<double>(now_us) * rate.tokens_per_us);
}

std::size_t cell_bytes(const RegisterPlan& plan) { return (plan.width + 7) / 8; }

/// Of a cell in its row, least significant first.
std::size_t cell_words(const RegisterPlan& plan) {
  return plan.width <= 32 ? 1 : 2 * ((plan.width + 63) / 64);
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
    last_rows_.push_back(0);
  }
}

std::size_t Cells::register_bytes(std::uint32_t array) const { return cell_bytes(arrays_.at(array)); }

const RegisterPlan& Cells::checked(std::uint32_t array, std::uint64_t first, std::size_t bytes) const {
  const RegisterPlan& plan = arrays_.at(array);
  if (bytes % cell_bytes(plan) != 0) throw std::invalid_argument("register: width");
  const std::uint64_t count = bytes / cell_bytes(plan);
  if (first > plan.size || count > plan.size - first) throw std::out_of_range("register: index");
  return plan;
}

void Cells::read_registers(std::uint32_t array, std::uint64_t first, std::span<std::byte> cells) {
  const RegisterPlan& plan = checked(array, first, cells.size());
  const std::size_t size = cell_bytes(plan);
  for (std::byte* to = cells.data(); to != cells.data() + cells.size(); to += size) {
    const std::uint32_t* from = cell(plan, static_cast<std::uint32_t>(first++));
    for (std::size_t i = 0; i < size; ++i) {
      to[size - 1 - i] = static_cast<std::byte>(from[i / 4] >> (8 * (i % 4)));
    }
  }
}

void Cells::write_registers(std::uint32_t array, std::uint64_t first, Bytes cells) {
  const RegisterPlan& plan = checked(array, first, cells.size());
  const std::size_t size = cell_bytes(plan);
  const std::byte in_first{static_cast<unsigned char>(0xFF >> (8 * size - plan.width))};
  for (const std::byte* from = cells.data(); from != cells.data() + cells.size(); from += size) {
    std::uint32_t* to = cell(plan, static_cast<std::uint32_t>(first++));
    std::fill_n(to, cell_words(plan), 0);
    for (std::size_t i = 0; i < size; ++i) {
      const std::byte one = i + 1 == size ? from[0] & in_first : from[size - 1 - i];
      to[i / 4] |= std::to_integer<std::uint32_t>(one) << (8 * (i % 4));
    }
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
