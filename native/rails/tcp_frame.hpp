// SPDX-License-Identifier: Apache-2.0
// The stream of a TCP rail: a handshake in which both ends prove that they know the job's key, then frames.
// The secret is never sent, and no message of a handshake is valid in another handshake. Each frame header
// ends with a code. The key of this code is different on each connection.
//
//     Dialling rank                          Listening rank
//     hello, with the number of the dial  →
//                                         ←  hello, with a random number; its code covers both numbers
//     proof: a code over both hellos      →
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "collectives/label.hpp"
#include "core/bytes.hpp"
#include "core/secret.hpp"

namespace railweave {

inline constexpr std::size_t kHelloSize = 48;
inline constexpr std::size_t kFrameHeaderSize = 12 + kLabelSize + sizeof(Mac);
inline constexpr std::size_t kMaxAbortPayload = 2048;  // bytes of an abort frame's payload

/// The sender and the intended receiver. Both ends must be in the same incarnation of the rail's connections.
struct Hello {
  std::uint32_t rank;
  std::uint32_t to;
  std::uint32_t world_size;
  std::uint32_t incarnation;
  std::uint64_t number;  // in a dial: greater than in all earlier dials to this peer; else random

  bool operator==(const Hello&) const = default;
};

/// `answered`: the number of the hello that this hello answers; 0 in a dial.
std::array<std::byte, kHelloSize> encode(const Hello& hello, std::uint64_t answered, const Key& key);
/// Returns nothing for bytes that are no hello, another version, or a sender without the key.
std::optional<Hello> decode_hello(const std::byte* from, std::uint64_t answered, const Key& key);
/// The last message of the handshake, which the dialling rank sends.
Mac proof(const Hello& dialled, const Hello& answer, const Key& key);
/// The key that authenticates the frames of `sender` after this handshake.
Key stream_key(const Hello& dialled, const Hello& answer, std::uint32_t sender, const Key& key);

enum class FrameType : std::uint8_t {
  kData = 1,       // a message with its label
  kAbort = 2,      // the reason why the sender gives up; label all zero
  kGoodbye = 3,    // the sender will send no more; empty
  kHeartbeat = 4,  // a sign of life; empty; label of the message that the sender awaits, or of 0 elements
};

struct FrameHeader {
  FrameType type;
  std::uint32_t length;  // of the payload, bytes
  std::uint32_t crc;     // of a message's payload, else 0: TCP's checksum misses some damage
  MessageLabel label;
};

using FrameHeaderBytes = std::array<std::byte, kFrameHeaderSize>;

FrameHeaderBytes encode(const FrameHeader& header);  // without its code
/// Writes the frame's code behind its header. The code covers the header and `failure`, the payload of an
/// abort frame.
void set_code(FrameHeaderBytes& header, Bytes failure, StreamCodes& codes);
bool has_code(const FrameHeaderBytes& header, Bytes failure, StreamCodes& codes);
std::optional<FrameHeader> decode_frame_header(const std::byte* from);  // nothing if invalid

std::vector<std::byte> encode_failure(const Failure& failure);  // an abort frame's payload
std::optional<Failure> decode_failure(Bytes payload);           // nothing if invalid; text is made printable

}  // namespace railweave
