// SPDX-License-Identifier: Apache-2.0
#include "rails/tcp_frame.hpp"

#include <algorithm>

namespace railweave {
namespace {

constexpr std::uint32_t kMagic = 0x5257'5450;  // "RWTP"
constexpr std::uint32_t kVersion = 2;
constexpr std::size_t kFailureHead = 6;  // kind 8, rank 32, length of the rail's name 8

bool all_zero(const std::byte* from, std::size_t size) {
  return std::all_of(from, from + size, [](std::byte b) { return b == std::byte{0}; });
}

std::optional<FrameHeader> control_header(FrameType type, std::uint32_t length, const std::byte* label) {
  const bool fits =
      type == FrameType::kAbort ? length >= kFailureHead && length <= kMaxAbortPayload : length == 0;
  if (!fits || !all_zero(label, kLabelSize)) return std::nullopt;
  return FrameHeader{.type = type, .length = length, .label = {}};
}

}  // namespace

std::array<std::byte, kHelloSize> encode(const Hello& hello) {
  std::array<std::byte, kHelloSize> out{};
  store_be(out.data(), kMagic);
  store_be(out.data() + 4, kVersion);
  store_be(out.data() + 8, hello.token);
  store_be(out.data() + 16, hello.rank);
  store_be(out.data() + 20, hello.world_size);
  store_be(out.data() + 24, hello.incarnation);
  return out;
}

std::optional<Hello> decode_hello(const std::byte* from) {
  if (load_be<std::uint32_t>(from) != kMagic || load_be<std::uint32_t>(from + 4) != kVersion)
    return std::nullopt;
  if (!all_zero(from + 28, 4)) return std::nullopt;
  return Hello{.token = load_be<std::uint64_t>(from + 8),
               .rank = load_be<std::uint32_t>(from + 16),
               .world_size = load_be<std::uint32_t>(from + 20),
               .incarnation = load_be<std::uint32_t>(from + 24)};
}

FrameHeaderBytes encode(const FrameHeader& header) {
  FrameHeaderBytes out{};
  out[0] = static_cast<std::byte>(header.type);
  store_be(out.data() + 4, header.length);
  if (header.type == FrameType::kData || header.type == FrameType::kHeartbeat)
    store_label(out.data() + 8, header.label);
  return out;
}

std::optional<FrameHeader> decode_frame_header(const std::byte* from) {
  if (!all_zero(from + 1, 3)) return std::nullopt;
  const auto type = static_cast<FrameType>(from[0]);
  const auto length = load_be<std::uint32_t>(from + 4);
  switch (type) {
    case FrameType::kData: {
      const auto label = load_label(from + 8);
      if (!label || length == 0) return std::nullopt;
      return FrameHeader{.type = type, .length = length, .label = *label};
    }
    case FrameType::kHeartbeat: {
      const auto label = load_label(from + 8);
      if (!label || length > 0) return std::nullopt;
      return FrameHeader{.type = type, .length = 0, .label = *label};
    }
    case FrameType::kAbort:
    case FrameType::kGoodbye:
      return control_header(type, length, from + 8);
  }
  return std::nullopt;
}

std::vector<std::byte> encode_failure(const Failure& failure) {
  const std::string rail = failure.rail.substr(0, 255);
  const std::string text = failure.message.substr(0, kMaxAbortPayload - kFailureHead - rail.size());
  std::vector<std::byte> out(kFailureHead + rail.size() + text.size());
  out[0] = static_cast<std::byte>(failure.kind);
  store_be(out.data() + 1, static_cast<std::int32_t>(failure.rank));
  out[5] = static_cast<std::byte>(rail.size());
  std::memcpy(out.data() + kFailureHead, rail.data(), rail.size());
  std::memcpy(out.data() + kFailureHead + rail.size(), text.data(), text.size());
  return out;
}

std::optional<Failure> decode_failure(Bytes payload) {
  const auto kind = static_cast<FailureKind>(payload[0]);
  const auto rail_size = static_cast<std::size_t>(payload[5]);
  if (kind > FailureKind::kInternal || kFailureHead + rail_size > payload.size()) return std::nullopt;
  std::string text(reinterpret_cast<const char*>(payload.data()) + kFailureHead,
                   payload.size() - kFailureHead);
  std::replace_if(text.begin(), text.end(), [](char c) { return c < ' ' || c > '~'; }, '?');
  return Failure{.kind = kind,
                 .rank = load_be<std::int32_t>(payload.data() + 1),
                 .message = text.substr(rail_size),
                 .rail = text.substr(0, rail_size),
                 .by_peer = true};
}

}  // namespace railweave
