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

/// Cuts one received frame. Segments are built in place, one after the other: header i is written over the
/// end of segment i-1, so a packet is valid until the next call of `next()` only. Checksums left to hardware
/// are completed. UDP (gso_type UDP_L4) and TCP super-packets are cut as the kernel would: lengths, IP ids,
/// TCP sequence numbers and flags; those in a VXLAN or Geneve tunnel as well. What cannot be understood
/// (hostile or unknown offload) yields nothing, and `refused()` says so.
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

  /// An IP header with the transport header behind it, and what does not differ between packets.
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
  Layer layer_;                   // the one that is cut
  std::optional<Layer> tunnel_;   // around it
  std::size_t header_size_ = 0;   // everything in front of the payload
  std::size_t segment_size_ = 0;  // payload of all segments but the last; 0: the frame is one packet
  std::size_t offset_ = 0;        // payload handed out so far
  std::uint16_t index_ = 0;
  bool refused_ = false;
  bool done_ = false;
};

/// Makes `frame`, plain UDP (`Headers::plain_udp`) with a longer payload, a super-packet: its headers speak
/// of all of it, and the kernel cuts it into packets of `segment_size` bytes of payload, whose ids count up.
Offload make_super_packet(MutableBytes frame, std::size_t segment_size);

}  // namespace railweave
