// SPDX-License-Identifier: Apache-2.0
// A packet on its way through the switch: its parsed headers and metadata, and what the program asked for.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "core/bytes.hpp"

namespace railweave::engine {

struct Packet {
  std::vector<std::byte> phv;  // metadata, validity and headers, laid out by the plan
  Bytes bytes;                 // as received or as recirculated
  std::size_t cursor = 0;      // bytes parsed
  std::uint64_t length = 0;    // of the packet as its headers now stand
  std::uint64_t ingress_length = 0;
  std::uint16_t ingress_port = 0;
  std::uint64_t error = 0;
  bool exited = false;
  std::size_t truncate = SIZE_MAX;
  std::uint64_t clone_session = 0;  // with bit 15 set: a clone was asked for
  std::uint64_t clone_fields = 0, resubmit_fields = 0, recirculate_fields = 0, learn_list = 0;

  Bytes payload() const { return bytes.subspan(cursor); }
  /// As far as truncation leaves it, which is what checksums see.
  Bytes payload_left() const { return payload().first(std::min(bytes.size() - cursor, truncate)); }
  std::uint8_t& byte(std::uint32_t offset) { return reinterpret_cast<std::uint8_t&>(phv[offset]); }
  void forget_requests() {
    clone_session = clone_fields = resubmit_fields = recirculate_fields = learn_list = 0;
  }
};

inline constexpr std::uint64_t kCloneRequested = 1u << 15;

}  // namespace railweave::engine
