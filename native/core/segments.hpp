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
/// TCP sequence numbers and flags. What cannot be understood (hostile or unknown offload) yields nothing, and
/// `refused()` says so.
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
  void fix_ip(std::byte* packet, std::size_t payload);
  void fix_udp(std::byte* packet, std::size_t payload);
  void fix_tcp(std::byte* packet, std::size_t payload, bool last);
  Bytes addresses(const std::byte* packet) const;

  MutableBytes frame_;
  std::array<std::byte, kMaxHeaders> headers_;
  std::size_t network_ = 0;       // offset of the IP header
  std::size_t transport_ = 0;     // offset of the UDP or TCP header
  std::size_t header_size_ = 0;   // everything in front of the payload
  std::size_t segment_size_ = 0;  // payload of all segments but the last; 0: the frame is one packet
  std::size_t offset_ = 0;        // payload handed out so far
  // Of what does not differ between packets: of the IPv4 header, and of UDP's with its pseudo header.
  std::uint64_t ip_sum_ = 0, udp_sum_ = 0;
  std::uint16_t first_id_ = 0;
  std::uint16_t index_ = 0;
  std::uint8_t protocol_ = 0;
  bool ipv6_ = false;
  bool without_checksum_ = false;  // a UDP sender chose none
  bool refused_ = false;
  bool done_ = false;
};

/// Makes `frame`, plain UDP (`Headers::plain_udp`) with a longer payload, a super-packet: its headers speak
/// of all of it, and the kernel cuts it into packets of `segment_size` bytes of payload, whose ids count up.
Offload make_super_packet(MutableBytes frame, std::size_t segment_size);

}  // namespace railweave
