// SPDX-License-Identifier: Apache-2.0
#include "engine/calculation.hpp"

#include <cstring>
#include <span>

#include "engine/headers.hpp"
#include "engine/wide.hpp"

namespace railweave::engine {
namespace {

/// Bits appended to a byte string, most significant first.
class BitString {
 public:
  explicit BitString(std::vector<std::byte>& bytes) : bytes_(bytes) { bytes_.clear(); }

  /// `width` bits from bit `position` of `from`.
  void append(const std::byte* from, std::uint64_t position, std::uint64_t width) {
    if (bits_ % 8 == 0 && position % 8 == 0 && width % 8 == 0) {
      bytes_.insert(bytes_.end(), from + position / 8, from + (position + width) / 8);
      bits_ += width;
      return;
    }
    const auto* bytes = reinterpret_cast<const unsigned char*>(from);
    for (std::uint64_t done = 0; done < width;) {
      const std::uint64_t step = width - done < 64 ? width - done : 64;
      std::uint64_t piece;
      wide::load_bits(&piece, 1, bytes, position + done, step);
      append(piece, step);
      done += step;
    }
  }

  /// The low `width` bits of `value`.
  void append(std::uint64_t value, std::uint64_t width) { append({&value, 1}, width); }
  void append(std::span<const std::uint64_t> limbs, std::uint64_t width) {
    bytes_.resize((bits_ + width + 7) / 8);
    wide::store_bits(limbs.data(), limbs.size(), reinterpret_cast<unsigned char*>(bytes_.data()), bits_,
                     width);
    bits_ += width;
  }

  /// The following bits begin a new byte.
  void append_payload(Bytes payload) { bytes_.insert(bytes_.end(), payload.begin(), payload.end()); }

 private:
  std::vector<std::byte>& bytes_;
  std::uint64_t bits_ = 0;
};

}  // namespace

void gather(const Plan& plan, std::span<const InputPlan> inputs, const Packet& packet,
            std::vector<std::byte>& buffer) {
  BitString bits(buffer);
  bool with_payload = false;
  for (const InputPlan& input : inputs) {
    if (input.valid != kNone && packet.phv[input.valid] == std::byte{0}) continue;
    switch (input.kind) {
      case InputPlan::kBits:
        bits.append(packet.phv.data(), input.offset, input.width);
        break;
      case InputPlan::kNative: {
        std::uint64_t value = 0;
        std::memcpy(&value, &packet.phv[input.offset], input.width <= 32 ? 4 : 8);
        bits.append(value, input.width);
        break;
      }
      case InputPlan::kConstant:
        bits.append(plan.wide_constants[input.offset], input.width);
        break;
      case InputPlan::kVariable: {
        const VariablePlan& variable = plan.variables[input.offset];
        bits.append(&packet.phv[variable.offset + VariablePlan::kLengthBytes], 0,
                    8ull * variable_length(packet, variable));
        break;
      }
      case InputPlan::kPayload:
        with_payload = true;
        break;
    }
  }
  if (with_payload) bits.append_payload(packet.payload_left());
}

std::uint64_t calculate(const Plan& plan, Algorithm algorithm, std::span<const InputPlan> inputs,
                        const Packet& packet, std::vector<std::byte>& buffer) {
  gather(plan, inputs, packet, buffer);
  return compute(algorithm, buffer);
}

}  // namespace railweave::engine
