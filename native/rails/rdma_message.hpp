// SPDX-License-Identifier: Apache-2.0
// What the RDMA rail says in SENDs. Data go by RDMA WRITE, straight to the place that a clearance names.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "collectives/label.hpp"
#include "core/bytes.hpp"

namespace railweave {

enum class ControlType : std::uint8_t {
  kClearToSend = 1,  // a receive has been posted
  kAbort = 2,        // why the sender gives up
  kGoodbye = 3,      // the sender will post nothing more
};

inline constexpr std::size_t kControlHeaderSize = 8;
inline constexpr std::size_t kMaxControl =
    2304;  // bytes of the longest control message: an abort's text is cut to fit

/// "Write the next message for me there": the k-th clearance meets the k-th send. The WRITE's immediate data
/// repeat `sequence`.
struct ClearToSend {
  std::uint32_t sequence;
  MessageLabel label;
  std::uint64_t address = 0;
  std::uint64_t length = 0;
  std::uint32_t rkey = 0;
};

/// Network order: type 8, version 8, zero 16, sequence 32; a clearance adds label, address 64, length 64,
/// rkey 32.
std::vector<std::byte> encode(const ClearToSend& clearance);
std::vector<std::byte> encode(ControlType type, Bytes payload);

/// Nothing: too short, of another version or of an unknown type.
std::optional<ControlType> control_type(Bytes message);
/// Nothing if a field is missing or has no meaning. `message` is of type kClearToSend.
std::optional<ClearToSend> decode_clear_to_send(Bytes message);

}  // namespace railweave
