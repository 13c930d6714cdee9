// SPDX-License-Identifier: Apache-2.0
#include "engine/cells.hpp"

#include <algorithm>
#include <bit>
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

inline constexpr std::uint64_t kBlockWords = 1024;  // of a row or more, each of which is noted as written

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
    wrote(plan.bank, static_cast<std::uint32_t>(first));
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

std::size_t Cells::track() {
  const auto blocks_of = [](std::uint64_t rows, std::uint64_t words) {
    const auto log2 =
        static_cast<std::uint32_t>(std::bit_width(std::max<std::uint64_t>(kBlockWords / words, 1)) - 1);
    return Written{log2, std::vector<std::uint8_t>((rows >> log2) + 1, 1)};
  };
  written_.clear();
  for (std::size_t i = 0; i < banks_.size(); ++i) {
    const std::uint64_t words = std::max(bank_words_[i], 1u);
    written_.push_back(blocks_of(banks_[i].size() / words, words));
  }
  for (const auto& counter : counters) {
    written_.push_back(blocks_of(counter.size(), sizeof(CounterValue) / sizeof(std::uint32_t)));
  }
  std::size_t blocks = 0;
  for (const Written& written : written_) blocks += written.blocks.size();
  return blocks;
}

bool Cells::carry(Cells& to, std::span<const Carried> registers, std::span<const Carried> carried_counters,
                  std::size_t most) {
  for (const Carried& array : registers) {
    if (array.size > arrays_.at(array.from).size || array.size > to.arrays_.at(array.to).size) {
      throw std::out_of_range("carry: register");
    }
  }
  for (const Carried& counter : carried_counters) {
    if (counter.size > counters.at(counter.from).size() || counter.size > to.counters.at(counter.to).size()) {
      throw std::out_of_range("carry: counter");
    }
  }
  for (std::size_t place = 0; place < written_.size(); ++place) {
    auto& blocks = written_[place].blocks;
    for (auto at = blocks.begin(); (at = std::find(at, blocks.end(), 1)) != blocks.end(); ++at) {
      if (most-- == 0) return false;
      *at = 0;
      const std::uint64_t rows = 1ull << written_[place].rows_log2;
      const std::uint64_t first = static_cast<std::uint64_t>(at - blocks.begin()) * rows;
      for (const Carried& array : registers) {
        if (arrays_[array.from].bank == place) carry_rows(to, array, first, rows);
      }
      for (const Carried& counter : carried_counters) {
        if (banks_.size() + counter.from != place || first >= counter.size) continue;
        std::copy_n(counters[counter.from].begin() + static_cast<std::ptrdiff_t>(first),
                    std::min(rows, counter.size - first),
                    to.counters[counter.to].begin() + static_cast<std::ptrdiff_t>(first));
      }
    }
  }
  return true;
}

void Cells::carry_rows(Cells& to, const Carried& array, std::uint64_t first, std::uint64_t rows) {
  const RegisterPlan& here = arrays_[array.from];
  const RegisterPlan& there = to.arrays_[array.to];
  const std::uint64_t end = std::min(first + rows, array.size);
  const std::size_t words = std::min(cell_words(here), cell_words(there));
  for (std::size_t word = 0; word < words; ++word) {
    const std::size_t bits = there.width > 32 * word ? std::min<std::size_t>(there.width - 32 * word, 32) : 0;
    const auto mask = static_cast<std::uint32_t>((1ull << bits) - 1);
    for (std::uint64_t row = first; row < end; ++row) {
      to.cell(there, static_cast<std::uint32_t>(row))[word] =
          cell(here, static_cast<std::uint32_t>(row))[word] & mask;
    }
  }
}

}  // namespace railweave::engine
