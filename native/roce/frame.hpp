// SPDX-License-Identifier: Apache-2.0
// RoCEv2 frames: Ethernet, IPv4 and UDP around the transport headers, and the invariant CRC (ICRC) at the
// end. A super-packet is a frame of up to 64 KiB with many packets, which the kernel cuts. Source: InfiniBand
// Architecture Specification, volume 1, annex A17 (RoCEv2).
#pragma once

#include <array>
#include <cstdint>

#include "core/bytes.hpp"
#include "core/crc32.hpp"
#include "core/headers.hpp"
#include "core/offload.hpp"
#include "roce/packet.hpp"

namespace railweave::roce {

using MacAddress = std::array<std::uint8_t, 6>;
using Ipv4Address = std::uint32_t;  // host order

inline constexpr std::size_t kFrameHeaderSize = kEthernetSize + kIpv4Size + kUdpSize;

/// From here to the peer.
struct Path {
  MacAddress source_mac{}, peer_mac{};
  Ipv4Address source{}, peer{};
  std::uint16_t source_port = 0xc000;  // entropy for hashing switches; the destination is always 4791
};

using NetworkHeader = std::array<std::byte, kIpv4Size + kUdpSize>;

/// IPv4 and UDP in front of `transport_size` bytes and their ICRC. The UDP checksum is 0 (none), because the
/// ICRC covers more. The caller sets the IPv4 header checksum, which the ICRC does not cover.
NetworkHeader network_header(const Path& path, std::uint16_t ip_id, std::size_t transport_size);

/// ICRCs of packets whose IPv4 (no options) and UDP headers differ only in lengths and IP identification.
/// Fields that may change on the way count as all ones: TOS, TTL, both checksums, and the BTH's FECN, BECN
/// and reserved bits.
class Icrc {
 public:
  explicit Icrc(const std::byte* network);

  /// `transport` holds BTH to padding.
  std::uint32_t of(std::uint16_t ip_id, Bytes transport) const;
  /// The same for the BTH at `transport` and `payload` (a multiple of 4 bytes), which is copied behind it.
  std::uint32_t copying(std::uint16_t ip_id, std::byte* transport, Bytes payload) const;

 private:
  CrcHead head(std::uint16_t ip_id, const std::byte* bth, std::size_t transport_size) const;

  std::array<std::uint64_t, 5> head_;  // covered bytes before the BTH, and room for its first four
};

/// Writes headers in front of, and the ICRC behind, the `transport_size` bytes that are already at
/// `frame[kFrameHeaderSize…]`. `frame` must have room for the ICRC. Returns the frame's size.
std::size_t seal(const Path& path, std::uint16_t ip_id, MutableBytes frame, std::size_t transport_size);

/// Writes the Ethernet header and `network` with its checksum.
void write_headers(const Path& path, const NetworkHeader& network, MutableBytes frame);

/// Packets to one peer that leave as one super-packet. All have the size of the first one, except that the
/// last may be shorter. Each IP identification is one above the previous, as the kernel numbers packets when
/// it cuts. So every ICRC is known before.
class Burst {
 public:
  /// Writes into `frame`. Two or more packets take at most `limit` bytes on the wire.
  Burst(const Path& path, std::uint16_t first_id, MutableBytes frame, std::size_t limit)
      : path_(path),
        icrc_(network_header(path, 0, 0).data()),
        first_id_(first_id),
        frame_(frame),
        limit_(limit) {}

  bool takes(const Packet& packet) const;
  void append(const Packet& packet);
  struct Made {
    std::size_t size;
    Offload offload;  // how the kernel is to cut it
  };
  /// Writes the headers.
  Made close();
  std::uint16_t count() const { return count_; }

 private:
  static constexpr std::uint16_t kMaxSegments = 64;  // UDP_MAX_SEGMENTS of kernels before 6.9

  const Path& path_;
  const Icrc icrc_;
  const std::uint16_t first_id_;
  const MutableBytes frame_;
  const std::size_t limit_;
  std::size_t size_ = kFrameHeaderSize;
  std::size_t segment_ = 0;  // bytes of the first packet, ICRC included
  bool open_ = true;         // a shorter packet ends the burst
  std::uint16_t count_ = 0;
};

enum class FrameFault : std::uint8_t { kNone, kNotRoce, kMalformed, kBadIcrc };

/// A received packet. `transport` (BTH to padding) is a view into its frame.
struct OpenedFrame {
  FrameFault fault = FrameFault::kNone;
  Ipv4Address source{}, destination{};
  MacAddress source_mac{};
  Bytes transport{};
};

/// The packets of a received frame: one, or several of a super-packet. Checks lengths, header checksum and
/// ICRCs. Other protocols, ports and fragments are kNotRoce.
class OpenedFrames {
 public:
  OpenedFrames(Bytes frame, const Offload& offload);

  /// Returns the next packet, valid until the next call; null after the last one. A frame with bad headers
  /// counts as one packet with a fault.
  const OpenedFrame* next();

 private:
  FrameFault open_headers(const Offload& offload);

  const Bytes frame_;
  OpenedFrame opened_;
  Icrc icrc_;
  std::size_t segment_ = 0;
  Bytes left_;  // of the UDP payload; empty before the first packet if the headers are bad
  std::uint16_t ip_id_ = 0;
  bool done_ = false;
};

}  // namespace railweave::roce
