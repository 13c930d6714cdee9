// SPDX-License-Identifier: Apache-2.0
// Registers, counters and meters of a plan.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "core/bytes.hpp"
#include "core/line_aligned.hpp"
#include "engine/entry.hpp"
#include "engine/plan.hpp"

namespace railweave::engine {

/// One cell of a meter: BMv2's token buckets. Always green until it is configured.
class Meter {
 public:
  /// The colour of a packet that costs this many tokens: 0 is green, the number of rates is red.
  std::uint64_t execute(std::uint64_t cost, std::uint64_t now_us);
  /// Slowest rate first; none: always green.
  void configure(std::span<const MeterRate> rates, std::uint64_t now_us);

 private:
  struct Bucket {
    MeterRate rate;
    std::uint64_t tokens, last;
  };
  std::vector<Bucket> buckets_;  // fastest rate first
};

class Cells {
 public:
  explicit Cells(const Plan& plan);

  // For packets: the caller has checked all indexes except those of meters.
  std::uint32_t* bank(std::uint32_t bank, std::uint32_t row) {
    return banks_[bank].data() + std::size_t{row} * bank_words_[bank];
  }
  std::uint32_t* cell(const RegisterPlan& array, std::uint32_t index) {
    return bank(array.bank, index) + array.word;
  }
  /// Packets of a burst step through a bank by equal distances. Fetches the row of the next packet while this
  /// packet works at `row`.
  [[gnu::always_inline]] void expect(std::uint32_t of, const BankPlan& plan, std::uint32_t row) {
    constexpr std::uint32_t kLineWords = kCacheLine / sizeof(std::uint32_t);
    if (plan.words < kLineWords) return;  // rows side by side are fetched by the processor itself
    const std::uint32_t next = row + (row - last_rows_[of]);
    if (next == row) return;
    last_rows_[of] = row;
    if (next >= plan.rows) return;
    const std::uint32_t* const at = bank(of, next);
    for (std::uint32_t word = 0; word < plan.words; word += kLineWords) __builtin_prefetch(at + word, 1);
  }
  std::uint64_t execute_meter(std::uint32_t meter, std::uint32_t index, std::uint64_t bytes,
                              std::uint64_t now_us) {
    return meters[meter].at(index).execute(meter_plans_[meter].bytes ? bytes : 1, now_us);
  }

  // For the control plane: a wrong number or index throws std::out_of_range, a wrong number of bytes or rates
  // std::invalid_argument. Registers are read and written as consecutive cells of (width + 7) / 8 bytes in
  // network order. A write ignores the bits beyond the width.
  std::size_t register_bytes(std::uint32_t array) const;  // of one cell
  void read_registers(std::uint32_t array, std::uint64_t first, std::span<std::byte> cells);
  void write_registers(std::uint32_t array, std::uint64_t first, Bytes cells);
  void set_meter(std::uint32_t meter, std::uint64_t index, std::span<const MeterRate> rates,
                 std::uint64_t now_us);

  std::vector<std::vector<CounterValue>> counters;
  std::vector<std::vector<Meter>> meters;

 private:
  const RegisterPlan& checked(std::uint32_t array, std::uint64_t first, std::size_t bytes) const;

  std::vector<RegisterPlan> arrays_;
  std::vector<MeterPlan> meter_plans_;
  std::vector<std::uint32_t> bank_words_;  // of a row
  std::vector<LineAligned<std::uint32_t>> banks_;
  std::vector<std::uint32_t> last_rows_;  // of each bank: where `expect` was called last
};

}  // namespace railweave::engine
