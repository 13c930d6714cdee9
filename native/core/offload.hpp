// SPDX-License-Identifier: Apache-2.0
// struct virtio_net_hdr as AF_PACKET uses it (PACKET_VNET_HDR): the work that is left to hardware for a
// frame. The kernel's own header is not C++ on all distributions.
#pragma once

#include <cstdint>

namespace railweave {

struct Offload {
  std::uint8_t flags;
  std::uint8_t gso_type;
  std::uint16_t hdr_len;
  std::uint16_t gso_size;
  std::uint16_t csum_start;
  std::uint16_t csum_offset;
};
static_assert(sizeof(Offload) == 10);

inline constexpr std::uint8_t kNeedsChecksum = 1;  // flag: the field holds the pseudo header's sum only
inline constexpr std::uint8_t kGsoNone = 0;
inline constexpr std::uint8_t kGsoTcp4 = 1;
inline constexpr std::uint8_t kGsoTcp6 = 4;
inline constexpr std::uint8_t kGsoUdp = 5;
inline constexpr std::uint8_t kGsoEcn = 0x80;  // or-ed to a type

}  // namespace railweave
