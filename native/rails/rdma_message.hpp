// SPDX-License-Identifier: Apache-2.0
// What the RDMA rail says in SENDs: short messages themselves, and where longer ones may be written.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "collectives/label.hpp"
#include "core/bytes.hpp"
#include "core/secret.hpp"

namespace railweave {

enum class ControlType : std::uint8_t {
  kClearToSend = 1,  // a receive has been posted
  kAbort = 2,        // why the sender gives up
  kGoodbye = 3,      // the sender will post nothing more
  kShort = 4,        // a whole message
  kTaken = 5,        // short ones have met their receives
};

inline constexpr std::size_t kControlHeaderSize = 8;
inline constexpr std::size_t kMostFailure = 2304;  // bytes of a message that says why: its text is cut to fit
inline constexpr std::size_t kMostShort = 16 * 1024;  // bytes of data, whatever the ranks have agreed on
inline constexpr std::size_t kShortHeaderSize = kControlHeaderSize + kLabelSize;
inline constexpr std::size_t kCodeSize = sizeof(Mac);  // at the end of every message

/// "Write message `sequence` for me there"; of a short one, "I wait for it". Messages are counted from 0 per
/// direction. The WRITE's immediate data repeat `sequence`.
struct ClearToSend {
  std::uint32_t sequence;
  MessageLabel label;
  std::uint64_t address = 0;
  std::uint64_t length = 0;
  std::uint32_t rkey = 0;
};

/// Message `sequence`.
struct ShortMessage {
  std::uint32_t sequence;
  MessageLabel label;
  Bytes data;
};

/// What every control message begins with.
struct ControlHeader {
  ControlType type;
  std::uint16_t taken;  // how many of the peer's short messages have met their receives, modulo 2^16
};

/// Network order: type 8, version 8, taken 16, sequence 32; a clearance adds label, address 64, length 64,
/// rkey 32, a short message label and data. They leave `taken` 0.
std::vector<std::byte> encode(const ClearToSend& clearance);
std::vector<std::byte> encode(const ShortMessage& message);
std::vector<std::byte> encode(ControlType type, Bytes payload);
void set_taken(std::vector<std::byte>& message, std::uint16_t taken);

/// Append the code. It covers the size, and all but the data of a short message.
void append_code(std::vector<std::byte>& message, StreamCodes& codes);
/// Return the message without its code; nothing if the code is wrong.
std::optional<Bytes> without_code(Bytes message, StreamCodes& codes);

/// Nothing: too short, of another version or of an unknown type.
std::optional<ControlHeader> decode_header(Bytes message);
/// Nothing if a field is missing or has no meaning. `message` is of type kClearToSend.
std::optional<ClearToSend> decode_clear_to_send(Bytes message);
/// Likewise of type kShort. The data are those of `message`, 1 to kMostShort.
std::optional<ShortMessage> decode_short(Bytes message);

}  // namespace railweave
