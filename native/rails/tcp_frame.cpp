// SPDX-License-Identifier: Apache-2.0
#include "rails/tcp_frame.hpp"

#include <algorithm>

namespace railweave {
namespace {

constexpr std::uint32_t kMagic = 0x5257'5450;  // "RWTP"
constexpr std::uint32_t kVersion = 4;
constexpr std::size_t kSaidSize = kHelloSize - sizeof(Mac);     // bytes of a hello, without its code
constexpr std::size_t kCoded = kFrameHeaderSize - sizeof(Mac);  // bytes of a header, without its code
constexpr std::size_t kFailureHead = 6;  // kind 8, rank 32, length of the rail's name 8

std::byte* store_said(std::byte* to, const Hello& hello) {
  return store_fields(to, kMagic, kVersion, hello.rank, hello.to, hello.world_size, hello.incarnation,
                      hello.number);
}

Mac code_of(const std::byte* said, std::uint64_t answered, const Key& key) {
  std::array<std::byte, kSaidSize + sizeof answered> message;
  std::copy_n(said, kSaidSize, message.begin());
  store_be(message.data() + kSaidSize, answered);
  return authenticate(key, message);
}

Mac code_of(const FrameHeaderBytes& header, Bytes failure, StreamCodes& codes) {
  if (failure.empty()) return codes.next(Bytes(header).first(kCoded), kCoded);
  std::vector<std::byte> message(header.begin(), header.begin() + kCoded);
  message.insert(message.end(), failure.begin(), failure.end());
  return codes.next(message, message.size());
}

}  // namespace

std::array<std::byte, kHelloSize> encode(const Hello& hello, std::uint64_t answered, const Key& key) {
  std::array<std::byte, kHelloSize> out{};
  std::byte* const end = store_said(out.data(), hello);
  std::ranges::copy(code_of(out.data(), answered, key), end);
  return out;
}

std::optional<Hello> decode_hello(const std::byte* from, std::uint64_t answered, const Key& key) {
  Hello hello{};
  std::uint32_t magic, version;
  const std::byte* const code = load_fields(from, magic, version, hello.rank, hello.to, hello.world_size,
                                            hello.incarnation, hello.number);
  if (magic != kMagic || version != kVersion) return std::nullopt;
  if (!equal(code_of(from, answered, key), {code, sizeof(Mac)})) return std::nullopt;
  return hello;
}

Mac proof(const Hello& dialled, const Hello& answer, const Key& key) {
  std::array<std::byte, 2 * kSaidSize> both;
  store_said(store_said(both.data(), dialled), answer);
  return authenticate(key, both);
}

Key stream_key(const Hello& dialled, const Hello& answer, std::uint32_t sender, const Key& key) {
  std::array<std::byte, 2 * kSaidSize + sizeof sender> all;
  store_be(store_said(store_said(all.data(), dialled), answer), sender);
  return authenticate(key, all);
}

void set_code(FrameHeaderBytes& header, Bytes failure, StreamCodes& codes) {
  std::ranges::copy(code_of(header, failure, codes), header.begin() + kCoded);
}

bool has_code(const FrameHeaderBytes& header, Bytes failure, StreamCodes& codes) {
  return equal(code_of(header, failure, codes), Bytes(header).last(sizeof(Mac)));
}

FrameHeaderBytes encode(const FrameHeader& header) {
  FrameHeaderBytes out{};
  std::byte* label =
      store_fields(out.data(), header.type, std::uint8_t{0}, std::uint16_t{0}, header.length, header.crc);
  if (header.type == FrameType::kData || header.type == FrameType::kHeartbeat)
    store_label(label, header.label);
  return out;
}

std::optional<FrameHeader> decode_frame_header(const std::byte* from) {
  FrameHeader header{};
  std::uint8_t zero8;
  std::uint16_t zero16;
  const std::byte* label = load_fields(from, header.type, zero8, zero16, header.length, header.crc);
  if (zero8 != 0 || zero16 != 0 || (header.crc != 0 && header.type != FrameType::kData)) return std::nullopt;
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
