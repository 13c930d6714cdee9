// SPDX-License-Identifier: Apache-2.0
#include "roce/packet.hpp"

#include <cstring>

namespace railweave::roce {
namespace {

constexpr std::uint8_t kSolicitedBit = 0x80;
constexpr std::uint32_t kAckRequestBit = 0x8000'0000;  // in the PSN's word
constexpr std::uint8_t kVersionMask = 0x0f;

constexpr std::size_t headers_size(const OpcodeShape& shape) {
  return kBthSize + (shape.reth ? kRethSize : 0) + (shape.aeth ? kAethSize : 0) +
         (shape.immediate ? kImmediateSize : 0);
}

constexpr std::size_t padding_of(std::size_t payload) { return (4 - payload % 4) % 4; }

Aeth parse_aeth(std::uint32_t word) {
  const auto syndrome = static_cast<std::uint8_t>(word >> 24);
  return {static_cast<AckKind>((syndrome >> 5) & 3), static_cast<std::uint8_t>(syndrome & 0x1f),
          word & 0xff'ffff};
}

std::uint32_t aeth_word(const Aeth& aeth) {
  const auto syndrome = static_cast<std::uint32_t>(aeth.kind) << 5 | (aeth.value & 0x1fu);
  return syndrome << 24 | (aeth.msn & 0xff'ffff);
}

}  // namespace

Opcode opcode_for(Operation operation, bool starts, bool ends, bool immediate) {
  for (std::size_t i = 0; i < kShapes.size(); ++i) {
    const OpcodeShape& shape = kShapes[i];
    if (shape.operation == operation && shape.starts == starts && shape.ends == ends &&
        shape.immediate == immediate) {
      return static_cast<Opcode>(i);
    }
  }
  __builtin_unreachable();  // immediate data rides only on parts that end a SEND or WRITE
}

std::optional<Packet> parse(Bytes transport) {
  if (transport.size() < kBthSize) return std::nullopt;
  Packet packet;
  std::uint8_t opcode, flags;
  const std::byte* at =
      load_fields(transport.data(), opcode, flags, packet.partition, packet.qpn, packet.psn);
  // Other opcodes (atomics, other transport services, CNP) are not supported.
  if (opcode >= kShapes.size()) return std::nullopt;
  const OpcodeShape& shape = kShapes[opcode];
  const std::size_t padding = (flags >> 4) & 3;
  const std::size_t headers = headers_size(shape);
  if ((flags & kVersionMask) != 0 || transport.size() < headers + padding) return std::nullopt;

  packet.opcode = static_cast<Opcode>(opcode);
  packet.solicited = (flags & kSolicitedBit) != 0;
  packet.ack_request = (packet.psn & kAckRequestBit) != 0;
  packet.qpn &= 0xff'ffff;
  packet.psn &= 0xff'ffff;
  if (shape.reth) at = load_fields(at, packet.reth.address, packet.reth.rkey, packet.reth.length);
  if (shape.aeth) {
    std::uint32_t word;
    at = load_fields(at, word);
    packet.aeth = parse_aeth(word);
  }
  if (shape.immediate) packet.immediate = load_be<std::uint32_t>(at);
  packet.payload = transport.subspan(headers, transport.size() - headers - padding);
  return packet;
}

std::size_t written_size(const Packet& packet) {
  return headers_size(packet.shape()) + packet.payload.size() + padding_of(packet.payload.size());
}

std::size_t write_headers(const Packet& packet, std::byte* to) {
  const OpcodeShape& shape = packet.shape();
  const auto flags = static_cast<std::uint8_t>((packet.solicited ? kSolicitedBit : 0) |
                                               padding_of(packet.payload.size()) << 4);
  // In words of the sizes that the ICRC loads. A load that covers several stores would wait until they are in
  // the cache.
  const std::uint32_t psn = (packet.ack_request ? kAckRequestBit : 0) | (packet.psn & 0xff'ffffu);
  store_be(to,
           static_cast<std::uint32_t>(packet.opcode) << 24 | std::uint32_t{flags} << 16 | packet.partition);
  store_be(to + 4, std::uint64_t{packet.qpn & 0xff'ffffu} << 32 | psn);
  std::byte* at = to + kBthSize;
  if (shape.reth) at = store_fields(at, packet.reth.address, packet.reth.rkey, packet.reth.length);
  if (shape.aeth) at = store_fields(at, aeth_word(packet.aeth));
  if (shape.immediate) at = store_fields(at, packet.immediate);
  return static_cast<std::size_t>(at - to);
}

std::size_t write(const Packet& packet, MutableBytes to) {
  const std::size_t padding = padding_of(packet.payload.size());
  std::byte* at = to.data() + write_headers(packet, to.data());
  if (!packet.payload.empty()) std::memcpy(at, packet.payload.data(), packet.payload.size());
  at += packet.payload.size();
  std::memset(at, 0, padding);
  return static_cast<std::size_t>(at + padding - to.data());
}

}  // namespace railweave::roce
