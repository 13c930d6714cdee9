// SPDX-License-Identifier: Apache-2.0
// What the TCP rail writes into a stream: a handshake in which both ends prove that they know the job's key,
// then frames. The secret does not travel, and no message of a handshake is of use in another. The header
// of a frame ends with a code, whose key is this connection's own.
//
//     dialling rank                          listening rank
//     hello, with the number of the dial  →
//                                         ←  hello, with a random number; its code covers the dial's, too
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

/// Who is at the other end, and to whom it speaks. Both ends must be in the same incarnation of the rail's
/// connections.
struct Hello {
  std::uint32_t rank;
  std::uint32_t to;
  std::uint32_t world_size;
  std::uint32_t incarnation;
  std::uint64_t number;  // of a dial: greater than of all that this rank has made there before; else random

  bool operator==(const Hello&) const = default;
};

/// `answered`: the number of the hello that this one answers; 0: none.
std::array<std::byte, kHelloSize> encode(const Hello& hello, std::uint64_t answered, const Key& key);
/// Nothing: not a hello, of another version, or of nobody who has the key.
std::optional<Hello> decode_hello(const std::byte* from, std::uint64_t answered, const Key& key);
/// What the dialling rank ends the handshake with.
Mac proof(const Hello& dialled, const Hello& answer, const Key& key);
/// The key of the codes of the frames that `sender` sends after this handshake.
Key stream_key(const Hello& dialled, const Hello& answer, std::uint32_t sender, const Key& key);

enum class FrameType : std::uint8_t {
  kData = 1,       // a message; the label says of what
  kAbort = 2,      // why the sender gives up; label all zero
  kGoodbye = 3,    // the sender will send no more; empty
  kHeartbeat = 4,  // the sender lives; empty; the label, unless of 0 elements, says what it waits for here
};

struct FrameHeader {
  FrameType type;
  std::uint32_t length;  // of the payload, bytes
  std::uint32_t crc;     // of a message's payload, else 0: TCP's checksum misses some damage
  MessageLabel label;
};

using FrameHeaderBytes = std::array<std::byte, kFrameHeaderSize>;

FrameHeaderBytes encode(const FrameHeader& header);  // without its code
/// Write the frame's code behind its header. It covers the header, and `failure`, the payload of an abort
/// frame.
void set_code(FrameHeaderBytes& header, Bytes failure, StreamCodes& codes);
bool has_code(const FrameHeaderBytes& header, Bytes failure, StreamCodes& codes);
std::optional<FrameHeader> decode_frame_header(const std::byte* from);  // nothing: no such frame

std::vector<std::byte> encode_failure(const Failure& failure);  // an abort frame's payload
std::optional<Failure> decode_failure(Bytes payload);           // nothing: no failure; text is made printable

}  // namespace railweave
