// SPDX-License-Identifier: Apache-2.0
// What the TCP rail writes into a stream: one hello each way, then frames.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "collectives/label.hpp"
#include "core/bytes.hpp"

namespace railweave {

inline constexpr std::size_t kHelloSize = 32;
inline constexpr std::size_t kFrameHeaderSize = 8 + kLabelSize;
inline constexpr std::size_t kMaxAbortPayload = 2048;  // bytes of an abort frame's payload

/// Who is at the other end, and of which job. Strangers cannot guess the token. Both ends must be in the same
/// incarnation of the rail's connections.
struct Hello {
  std::uint64_t token;
  std::uint32_t rank;
  std::uint32_t world_size;
  std::uint32_t incarnation;

  bool operator==(const Hello&) const = default;
};

std::array<std::byte, kHelloSize> encode(const Hello& hello);
std::optional<Hello> decode_hello(const std::byte* from);  // nothing: not a hello, or of another version

enum class FrameType : std::uint8_t {
  kData = 1,       // a message; the label says of what
  kAbort = 2,      // why the sender gives up; label all zero
  kGoodbye = 3,    // the sender will send no more; empty
  kHeartbeat = 4,  // the sender lives; empty; the label, unless of 0 elements, says what it waits for here
};

struct FrameHeader {
  FrameType type;
  std::uint32_t length;  // of the payload, bytes
  MessageLabel label;
};

using FrameHeaderBytes = std::array<std::byte, kFrameHeaderSize>;

FrameHeaderBytes encode(const FrameHeader& header);
std::optional<FrameHeader> decode_frame_header(const std::byte* from);  // nothing: no such frame

std::vector<std::byte> encode_failure(const Failure& failure);  // an abort frame's payload
std::optional<Failure> decode_failure(Bytes payload);           // nothing: no failure; text is made printable

}  // namespace railweave
