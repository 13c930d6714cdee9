// SPDX-License-Identifier: Apache-2.0
// The InfiniBand transport headers of reliable connections, as RoCEv2 carries them in UDP:
// BTH, then RETH, AETH or immediate data as the opcode says, then payload and padding to four bytes.
// Source: InfiniBand Architecture Specification, volume 1, chapter 9 (transport layer).
#pragma once

#include <array>
#include <cstdint>
#include <optional>

#include "core/bytes.hpp"

namespace railweave::roce {

inline constexpr std::uint16_t kUdpPort = 4791;
inline constexpr std::uint16_t kDefaultPartition = 0xffff;
inline constexpr std::size_t kBthSize = 12, kRethSize = 16, kAethSize = 4, kImmediateSize = 4, kIcrcSize = 4;
/// Most bytes that headers and padding add to a payload, without the ICRC.
inline constexpr std::size_t kMaxOverhead = kBthSize + kRethSize + kImmediateSize + 3;

// Packet sequence numbers. The wire carries 24 bits. Requester and responder count in 64 bits, which never
// wrap. They map a received number to the one within half a circle (2^23) of a known number.
using Sequence = std::int64_t;

inline constexpr std::uint32_t kPsnMask = 0xff'ffff;
inline constexpr Sequence kPsnHalf = Sequence{1} << 23;

constexpr std::uint32_t psn_of(Sequence sequence) { return static_cast<std::uint32_t>(sequence) & kPsnMask; }

/// The sequence nearest to `reference` whose low 24 bits are `psn`; exactly half a circle away counts as
/// behind.
constexpr Sequence sequence_near(Sequence reference, std::uint32_t psn) {
  const auto ahead = static_cast<Sequence>((psn - psn_of(reference)) & kPsnMask);
  return reference + (ahead < kPsnHalf ? ahead : ahead - 2 * kPsnHalf);
}

enum class Opcode : std::uint8_t {
  kSendFirst = 0x00,
  kSendMiddle = 0x01,
  kSendLast = 0x02,
  kSendLastImmediate = 0x03,
  kSendOnly = 0x04,
  kSendOnlyImmediate = 0x05,
  kWriteFirst = 0x06,
  kWriteMiddle = 0x07,
  kWriteLast = 0x08,
  kWriteLastImmediate = 0x09,
  kWriteOnly = 0x0a,
  kWriteOnlyImmediate = 0x0b,
  kReadRequest = 0x0c,
  kReadResponseFirst = 0x0d,
  kReadResponseMiddle = 0x0e,
  kReadResponseLast = 0x0f,
  kReadResponseOnly = 0x10,
  kAcknowledge = 0x11,
};

enum class Operation : std::uint8_t { kSend, kWrite, kReadRequest, kReadResponse, kAcknowledge };

/// The meaning of an opcode: its operation, its part of a message, and the headers behind the BTH.
struct OpcodeShape {
  Operation operation;
  bool starts, ends;  // first or only; last or only
  bool reth, aeth, immediate;
};

// clang-format off
inline constexpr std::array<OpcodeShape, 0x12> kShapes{{
    //                              starts ends   reth   aeth   imm
    {Operation::kSend,              true,  false, false, false, false},
    {Operation::kSend,              false, false, false, false, false},
    {Operation::kSend,              false, true,  false, false, false},
    {Operation::kSend,              false, true,  false, false, true},
    {Operation::kSend,              true,  true,  false, false, false},
    {Operation::kSend,              true,  true,  false, false, true},
    {Operation::kWrite,             true,  false, true,  false, false},
    {Operation::kWrite,             false, false, false, false, false},
    {Operation::kWrite,             false, true,  false, false, false},
    {Operation::kWrite,             false, true,  false, false, true},
    {Operation::kWrite,             true,  true,  true,  false, false},
    {Operation::kWrite,             true,  true,  true,  false, true},
    {Operation::kReadRequest,       true,  true,  true,  false, false},
    {Operation::kReadResponse,      true,  false, false, true,  false},
    {Operation::kReadResponse,      false, false, false, false, false},
    {Operation::kReadResponse,      false, true,  false, true,  false},
    {Operation::kReadResponse,      true,  true,  false, true,  false},
    {Operation::kAcknowledge,       true,  true,  false, true,  false},
}};
// clang-format on

/// Returns the opcode for a part of a message.
Opcode opcode_for(Operation operation, bool starts, bool ends, bool immediate);

struct Reth {
  std::uint64_t address;
  std::uint32_t rkey;
  std::uint32_t length;
};

/// The AETH's syndrome: kind in bits 6-5, value (credits, RNR timer code or NAK code) in bits 4-0.
enum class AckKind : std::uint8_t { kAck = 0, kReceiverNotReady = 1, kReserved = 2, kNak = 3 };
enum class NakCode : std::uint8_t {
  kSequenceError = 0,
  kInvalidRequest = 1,
  kRemoteAccessError = 2,
  kRemoteOperationalError = 3,
  kInvalidReadRequest = 4,
};
inline constexpr std::uint8_t kCreditsUnlimited = 0x1f;

struct Aeth {
  AckKind kind;
  std::uint8_t value;
  std::uint32_t msn;  // 24 bits: messages that the responder has completed
};

struct Packet {
  Opcode opcode = Opcode::kAcknowledge;
  bool solicited = false;
  bool ack_request = false;
  std::uint16_t partition = kDefaultPartition;
  std::uint32_t qpn = 0;  // destination, 24 bits
  std::uint32_t psn = 0;  // 24 bits
  Reth reth{};            // if the opcode has one
  Aeth aeth{};
  std::uint32_t immediate = 0;
  Bytes payload{};  // without padding

  const OpcodeShape& shape() const { return kShapes[static_cast<std::size_t>(opcode)]; }
};

/// Reads BTH to padding (no ICRC). Returns nullopt if the packet is too short, of another version or of an
/// unknown opcode. The payload is a view.
std::optional<Packet> parse(Bytes transport);

/// Bytes that `write` will produce.
std::size_t written_size(const Packet& packet);
/// Writes the headers in front of the payload. Returns their size.
std::size_t write_headers(const Packet& packet, std::byte* to);
/// Writes BTH to padding into `to`, which must hold `written_size`; copies the payload. Returns the size.
std::size_t write(const Packet& packet, MutableBytes to);

}  // namespace railweave::roce
