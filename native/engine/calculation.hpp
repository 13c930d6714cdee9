// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "core/checksum.hpp"
#include "engine/hash.hpp"
#include "engine/packet.hpp"
#include "engine/plan.hpp"

namespace railweave::engine {

/// The concatenated bits of `inputs`, with zeros in the last byte's free bits, then the payload.
void gather(const Plan& plan, std::span<const InputPlan> inputs, const Packet& packet,
            std::vector<std::byte>& buffer);

/// The Internet checksum (RFC 1071) of inputs that are whole 16-bit words; nullopt for other inputs. It reads
/// the words in place: a load from a copy would wait for the stores that make the copy.
[[gnu::always_inline]] inline std::optional<std::uint64_t> checksum_in_place(
    std::span<const InputPlan> inputs, const Packet& packet) {
  std::uint64_t sum = 0;  // of words in the host's order, which is swapped once at the end
  for (const InputPlan& input : inputs) {
    if (input.valid != kNone && packet.phv[input.valid] == std::byte{0}) continue;
    if (input.kind != InputPlan::kBits || input.offset % 8 != 0 || input.width % 16 != 0) return std::nullopt;
    sum += sum_few_words({&packet.phv[input.offset / 8], input.width / 8});
  }
  return __builtin_bswap16(checksum(sum));
}

/// The hash or checksum over `inputs`. `buffer` gathers them and is reused.
std::uint64_t calculate(const Plan& plan, Algorithm algorithm, std::span<const InputPlan> inputs,
                        const Packet& packet, std::vector<std::byte>& buffer);

}  // namespace railweave::engine
