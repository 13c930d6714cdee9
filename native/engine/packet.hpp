// SPDX-License-Identifier: Apache-2.0
// A packet on its way through the switch: its parsed headers, its metadata, and the requests of the program.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <vector>

#include "core/bytes.hpp"
#include "core/line_aligned.hpp"

namespace railweave::engine {

/// All of a packet except its PHV.
struct PacketState {
  Bytes bytes;               // as received or as recirculated
  std::size_t cursor = 0;    // bytes parsed
  std::uint64_t length = 0;  // of the packet as its headers now stand
  std::uint64_t ingress_length = 0;
  std::uint16_t ingress_port = 0;
  std::uint64_t error = 0;
  bool exited = false;
  std::size_t truncate = SIZE_MAX;
  std::uint64_t clone_session = 0;  // with bit 15 set: a clone was asked for
  std::uint64_t clone_fields = 0, resubmit_fields = 0, recirculate_fields = 0, learn_list = 0;
  // Where the plan's large header lies: in the packet as received, in zeros, or in the PHV of the original of
  // a copy. It lies in the packet's own PHV if this is nullptr.
  const std::byte* body = nullptr;

  Bytes payload() const { return bytes.subspan(cursor); }
  /// The payload that truncation leaves, which checksums cover.
  Bytes payload_left() const { return payload().first(std::min(bytes.size() - cursor, truncate)); }
  void forget_requests() {
    clone_session = clone_fields = resubmit_fields = recirculate_fields = learn_list = 0;
  }
};

struct Packet : PacketState {
  LineAligned<std::byte> phv;  // metadata, validity and headers, laid out by the plan

  std::uint8_t& byte(std::uint32_t offset) { return reinterpret_cast<std::uint8_t&>(phv[offset]); }
};

/// A packet as it leaves, in pieces that follow each other.
struct Pieces {
  std::array<Bytes, 3> of;
  std::size_t priority = 0;  // number of its queue at the port

  explicit Pieces(Bytes whole = {}) : of{whole} {}
  Pieces(Bytes first, Bytes second, Bytes third) : of{first, second, third} {}

  std::size_t size() const { return of[0].size() + of[1].size() + of[2].size(); }
  void cut(std::size_t bytes) {
    for (Bytes& piece : of) {
      piece = piece.first(std::min(piece.size(), bytes));
      bytes -= piece.size();
    }
  }
  void write(std::byte* to) const {
    for (const Bytes& piece : of) to = std::copy(piece.begin(), piece.end(), to);
  }
  /// The packet in one piece; copies it to `room` if it has more pieces.
  Bytes whole(std::vector<std::byte>& room) const {
    if (of[1].empty() && of[2].empty()) return of[0];
    room.resize(size());
    write(room.data());
    return room;
  }
};

inline constexpr std::uint64_t kCloneRequested = 1u << 15;

}  // namespace railweave::engine
