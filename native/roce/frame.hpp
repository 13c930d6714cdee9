// SPDX-License-Identifier: Apache-2.0
// RoCEv2 frames: Ethernet, IPv4 and UDP around the transport headers, and the invariant CRC over all of it;
// and many packets in one frame of up to 64 KiB, which the kernel cuts. Source: InfiniBand Architecture
// Specification, volume 1, annex A17 (RoCEv2).
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

/// IPv4 and UDP in front of `transport_size` bytes and their ICRC. The UDP checksum is 0, none: the ICRC
/// covers more. The header checksum, which the ICRC does not see, is left to the caller.
NetworkHeader network_header(const Path& path, std::uint16_t ip_id, std::size_t transport_size);

/// The ICRCs of packets behind the same IPv4 (no options) and UDP headers but for lengths and IP
/// identification. Fields that may change on the way count as ones: TOS, TTL, both checksums, and the BTH's
/// FECN, BECN and reserved bits.
class Icrc {
 public:
  explicit Icrc(const std::byte* network);

  /// `transport` holds BTH to padding.
  std::uint32_t of(std::uint16_t ip_id, Bytes transport) const;
  /// The same of the BTH at `transport` and of a payload, a multiple of four, which it copies behind that.
  std::uint32_t copying(std::uint16_t ip_id, std::byte* transport, Bytes payload) const;

 private:
  CrcHead head(std::uint16_t ip_id, const std::byte* bth, std::size_t transport_size) const;

  std::array<std::uint64_t, 5> head_;  // what is covered in front of the BTH, and four bytes for that
};

/// Writes headers in front of, and the ICRC behind, the `transport_size` bytes that already lie at
/// `frame[kFrameHeaderSize…]`. `frame` must hold kIcrcSize more than that. Returns the frame's size.
std::size_t seal(const Path& path, std::uint16_t ip_id, MutableBytes frame, std::size_t transport_size);

/// Writes the Ethernet header and `network` with its checksum.
void write_headers(const Path& path, const NetworkHeader& network, MutableBytes frame);

/// Packets to one peer that leave as one super-packet: all of the size of the first, save a shorter last one.
/// Their IP identifications count up by one, as the kernel numbers them when it cuts, so every ICRC is known
/// beforehand.
class Burst {
 public:
  /// Writes into `frame`, up to `limit` bytes of the wire if there is more than one packet.
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
  static constexpr std::uint16_t kMaxSegments = 64;  // the kernel's UDP_MAX_SEGMENTS of before 6.9

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

/// The packets of a frame as it has come: one, or those of a super-packet. Checks lengths, header checksum
/// and ICRCs. Other protocols, ports and fragments are kNotRoce.
class OpenedFrames {
 public:
  OpenedFrames(Bytes frame, const Offload& offload);

  /// The next packet, until the next call, or null after the last. What is no RoCE frame as a whole is one
  /// packet with a fault.
  const OpenedFrame* next();

 private:
  FrameFault open_headers(const Offload& offload);

  const Bytes frame_;
  OpenedFrame opened_;
  Icrc icrc_;
  std::size_t segment_ = 0;
  Bytes left_;  // of the UDP payload; empty before the first packet: a fault of the whole frame
  std::uint16_t ip_id_ = 0;
  bool done_ = false;
};

}  // namespace railweave::roce
