// SPDX-License-Identifier: Apache-2.0
// Control messages, which the RDMA rail sends with SEND: short messages, and clearances for longer messages.
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
  kTaken = 5,        // short messages have met their receives
};

inline constexpr std::size_t kControlHeaderSize = 8;
inline constexpr std::size_t kMostFailure = 2304;     // bytes of kAbort; its text is cut to fit
inline constexpr std::size_t kMostShort = 16 * 1024;  // bytes of data; ranks may agree on less
inline constexpr std::size_t kShortHeaderSize = kControlHeaderSize + kLabelSize;
inline constexpr std::size_t kCodeSize = sizeof(Mac);  // at the end of every message

/// A clearance: the peer may write message `sequence` at `address`. For a short message: the receiver waits.
/// Messages are numbered from 0 per direction. The WRITE's immediate data repeat `sequence`.
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

/// The start of every control message.
struct ControlHeader {
  ControlType type;
  std::uint16_t taken;  // how many of the peer's short messages have met their receives, modulo 2^16
};

/// Network order, sizes in bits: type 8, version 8, taken 16, sequence 32. A clearance adds label, address
/// 64, length 64, rkey 32. A short message adds label and data. `encode` leaves `taken` 0.
std::vector<std::byte> encode(const ClearToSend& clearance);
std::vector<std::byte> encode(const ShortMessage& message);
std::vector<std::byte> encode(ControlType type, Bytes payload);
void set_taken(std::vector<std::byte>& message, std::uint16_t taken);

/// Append the code. It covers the size and all bytes, except the data of a short message.
void append_code(std::vector<std::byte>& message, StreamCodes& codes);
/// Return the message without its code; nothing if the code is wrong.
std::optional<Bytes> without_code(Bytes message, StreamCodes& codes);

/// Return nothing if the message is too short, of another version or of an unknown type.
std::optional<ControlHeader> decode_header(Bytes message);
/// Return nothing if a field is missing or has no meaning. `message` is of type kClearToSend.
std::optional<ClearToSend> decode_clear_to_send(Bytes message);
/// The same for type kShort. The returned data are a view of `message`, 1 to kMostShort bytes.
std::optional<ShortMessage> decode_short(Bytes message);

}  // namespace railweave
