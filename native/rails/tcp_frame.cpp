// SPDX-License-Identifier: Apache-2.0
#include "rails/tcp_frame.hpp"

#include <algorithm>

namespace railweave {
namespace {

constexpr std::uint32_t kMagic = 0x5257'5450;  // "RWTP"
constexpr std::uint32_t kVersion = 2;
constexpr std::size_t kFailureHead = 6;  // kind 8, rank 32, length of the rail's name 8

}  // namespace

std::array<std::byte, kHelloSize> encode(const Hello& hello) {
  std::array<std::byte, kHelloSize> out{};
  store_fields(out.data(), kMagic, kVersion, hello.token, hello.rank, hello.world_size, hello.incarnation);
  return out;
}

std::optional<Hello> decode_hello(const std::byte* from) {
  Hello hello{};
  std::uint32_t magic, version, zero;
  load_fields(from, magic, version, hello.token, hello.rank, hello.world_size, hello.incarnation, zero);
  if (magic != kMagic || version != kVersion || zero != 0) return std::nullopt;
  return hello;
}

FrameHeaderBytes encode(const FrameHeader& header) {
  FrameHeaderBytes out{};
  std::byte* label = store_fields(out.data(), header.type, std::uint8_t{0}, std::uint16_t{0}, header.length);
  if (header.type == FrameType::kData || header.type == FrameType::kHeartbeat)
    store_label(label, header.label);
  return out;
}

std::optional<FrameHeader> decode_frame_header(const std::byte* from) {
  FrameHeader header{};
  std::uint8_t zero8;
  std::uint16_t zero16;
  const std::byte* label = load_fields(from, header.type, zero8, zero16, header.length);
  if (zero8 != 0 || zero16 != 0) return std::nullopt;
  switch (header.type) {
    case FrameType::kData:
    case FrameType::kHeartbeat: {
      const auto labelled = load_label(label);
      if (!labelled || (header.length > 0) != (header.type == FrameType::kData)) return std::nullopt;
      header.label = *labelled;
      return header;
    }
    case FrameType::kAbort:
      if (header.length < kFailureHead || header.length > kMaxAbortPayload) return std::nullopt;
      break;
    case FrameType::kGoodbye:
      if (header.length > 0) return std::nullopt;
      break;
    default:
      return std::nullopt;
  }
  const bool zeros = std::all_of(label, label + kLabelSize, [](std::byte b) { return b == std::byte{0}; });
  return zeros ? std::optional(header) : std::nullopt;
}

std::vector<std::byte> encode_failure(const Failure& failure) {
  const std::string rail = failure.rail.substr(0, 255);
  const std::string text = failure.message.substr(0, kMaxAbortPayload - kFailureHead - rail.size());
  std::vector<std::byte> out(kFailureHead + rail.size() + text.size());
  std::byte* to =
      store_fields(out.data(), failure.kind, failure.rank, static_cast<std::uint8_t>(rail.size()));
  std::memcpy(to, rail.data(), rail.size());
  std::memcpy(to + rail.size(), text.data(), text.size());
  return out;
}

std::optional<Failure> decode_failure(Bytes payload) {
  if (payload.size() < kFailureHead) return std::nullopt;
  FailureKind kind;
  int rank;
  std::uint8_t rail_size;
  load_fields(payload.data(), kind, rank, rail_size);
  if (kind > FailureKind::kInternal || rail_size > payload.size() - kFailureHead) return std::nullopt;
  std::string text(reinterpret_cast<const char*>(payload.data()) + kFailureHead,
                   payload.size() - kFailureHead);
  std::replace_if(text.begin(), text.end(), [](char c) { return c < ' ' || c > '~'; }, '?');
  return Failure{.kind = kind,
                 .rank = rank,
                 .message = text.substr(rail_size),
                 .rail = text.substr(0, rail_size),
                 .by_peer = true};
}

}  // namespace railweave
