// SPDX-License-Identifier: Apache-2.0
// Super-packets: from a frame as the kernel hands it over (offloads still pending) to packets as they would
// be on a wire, and back.
#pragma once

#include <array>
#include <cstdint>
#include <optional>

#include "core/bytes.hpp"
#include "core/headers.hpp"
#include "core/offload.hpp"

namespace railweave {

/// Cuts one received frame. Segments are built in place, one after the other. Header i is written over the
/// end of segment i-1, so a packet is valid only until the next call of `next()`. Checksums left to hardware
/// are completed. UDP (gso_type UDP_L4) and TCP super-packets are cut as the kernel would, also in a VXLAN or
/// Geneve tunnel: lengths, IP ids, TCP sequence numbers and flags. A hostile or unknown offload yields
/// nothing, and `refused()` says so.
class Segments {
 public:
  Segments(MutableBytes frame, const Offload& offload);

  /// The next packet, or nothing after the last.
  std::optional<MutableBytes> next();

  bool refused() const { return refused_; }

 private:
  static constexpr std::size_t kMaxHeaders = 256;

  bool complete_checksum(const Offload& offload);
  bool prepare_cut(const Offload& offload);
  std::optional<Headers> locate_tunnelled(const Headers& outer, std::size_t transport) const;

  /// An IP header with the transport header behind it, and the values that are the same in all packets.
  struct Layer {
    std::size_t network = 0;    // offset of the IP header
    std::size_t transport = 0;  // offset of the UDP or TCP header
    std::uint64_t ip_sum = 0;   // of the IPv4 header
    std::uint64_t udp_sum = 0;  // of UDP's header and its pseudo header
    std::uint16_t first_id = 0;
    std::uint8_t protocol = 0;
    bool ipv6 = false;
    bool without_checksum = false;  // a UDP sender chose none

    Bytes addresses(const std::byte* packet) const;
  };

  Layer prepare(const Headers& headers, bool checksum_pending);
  void fix_ip(const Layer& layer, std::byte* packet, std::size_t size) const;
  void fix_udp(const Layer& layer, std::byte* packet, std::size_t size) const;
  void fix_tcp(std::byte* packet, std::size_t size, bool last) const;

  MutableBytes frame_;
  std::array<std::byte, kMaxHeaders> headers_;
  Layer layer_;                   // the layer that is cut
  std::optional<Layer> tunnel_;   // the layer around `layer_`
  std::size_t header_size_ = 0;   // everything in front of the payload
  std::size_t segment_size_ = 0;  // payload of all segments but the last; 0: the frame is one packet
  std::size_t offset_ = 0;        // payload handed out so far
  std::uint16_t index_ = 0;
  bool refused_ = false;
  bool done_ = false;
};

/// Makes a super-packet of `frame`, plain UDP (`Headers::plain_udp`) with a longer payload. Its headers
/// describe all of the payload. The kernel cuts it into `segment_size` bytes per packet, with ascending ids.
Offload make_super_packet(MutableBytes frame, std::size_t segment_size);

}  // namespace railweave
