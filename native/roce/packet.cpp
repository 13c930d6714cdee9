// SPDX-License-Identifier: Apache-2.0
#include "roce/packet.hpp"

#include <cstring>

namespace railweave::roce {
namespace {

constexpr std::uint8_t kSolicitedBit = 0x80;
constexpr std::uint8_t kAckRequestBit = 0x80;
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
  const std::byte* at = transport.data();
  const auto shape = shape_of(load_be<std::uint8_t>(at));
  if (!shape) return std::nullopt;
  const auto flags = load_be<std::uint8_t>(at + 1);
  const std::size_t padding = (flags >> 4) & 3;
  const std::size_t headers = headers_size(*shape);
  if ((flags & kVersionMask) != 0 || transport.size() < headers + padding) return std::nullopt;

  Packet packet;
  packet.opcode = static_cast<Opcode>(load_be<std::uint8_t>(at));
  packet.solicited = (flags & kSolicitedBit) != 0;
  packet.partition = load_be<std::uint16_t>(at + 2);
  packet.qpn = load_be<std::uint32_t>(at + 4) & 0xff'ffff;
  packet.ack_request = (load_be<std::uint8_t>(at + 8) & kAckRequestBit) != 0;
  packet.psn = load_be<std::uint32_t>(at + 8) & 0xff'ffff;
  at += kBthSize;
  if (shape->reth) {
    packet.reth = {load_be<std::uint64_t>(at), load_be<std::uint32_t>(at + 8),
                   load_be<std::uint32_t>(at + 12)};
    at += kRethSize;
  }
  if (shape->aeth) {
    packet.aeth = parse_aeth(load_be<std::uint32_t>(at));
    at += kAethSize;
  }
  if (shape->immediate) packet.immediate = load_be<std::uint32_t>(at);
  packet.payload = transport.subspan(headers, transport.size() - headers - padding);
  return packet;
}

std::size_t written_size(const Packet& packet) {
  return headers_size(packet.shape()) + packet.payload.size() + padding_of(packet.payload.size());
}

std::size_t write(const Packet& packet, MutableBytes to) {
  const OpcodeShape shape = packet.shape();
  const std::size_t padding = padding_of(packet.payload.size());
  std::byte* at = to.data();
  store_be(at, static_cast<std::uint8_t>(packet.opcode));
  store_be(at + 1, static_cast<std::uint8_t>((packet.solicited ? kSolicitedBit : 0) | padding << 4));
  store_be(at + 2, packet.partition);
  store_be(at + 4, packet.qpn & 0xff'ffffu);
  store_be(at + 8, (packet.ack_request ? 0x8000'0000u : 0u) | (packet.psn & 0xff'ffffu));
  at += kBthSize;
  if (shape.reth) {
    store_be(at, packet.reth.address);
    store_be(at + 8, packet.reth.rkey);
    store_be(at + 12, packet.reth.length);
    at += kRethSize;
  }
  if (shape.aeth) {
    store_be(at, aeth_word(packet.aeth));
    at += kAethSize;
  }
  if (shape.immediate) {
    store_be(at, packet.immediate);
    at += kImmediateSize;
  }
  if (!packet.payload.empty()) std::memcpy(at, packet.payload.data(), packet.payload.size());
  at += packet.payload.size();
  std::memset(at, 0, padding);
  return static_cast<std::size_t>(at + padding - to.data());
}

}  // namespace railweave::roce
