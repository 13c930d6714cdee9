// SPDX-License-Identifier: Apache-2.0
// Many packets in one frame of up to 64 KiB, which the kernel cuts.
#pragma once

#include <cstdint>

#include "core/offload.hpp"
#include "roce/frame.hpp"

namespace railweave::roce {

/// Packets to one peer that leave as one super-packet: all of the size of the first, save a shorter last one.
/// Their IP identifications count up by one, as the kernel numbers them when it cuts, so every ICRC is known
/// beforehand.
class Burst {
 public:
  /// Writes into `frame`, up to `limit` bytes if there is more than one packet.
  Burst(const Path& path, std::uint16_t first_id, MutableBytes frame, std::size_t limit)
      : path_(path), first_id_(first_id), frame_(frame), limit_(limit) {}

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
  const std::uint16_t first_id_;
  const MutableBytes frame_;
  const std::size_t limit_;
  std::size_t size_ = kFrameHeaderSize;
  std::size_t segment_ = 0;  // bytes of the first packet, ICRC included
  bool open_ = true;         // a shorter packet ends the burst
  std::uint16_t count_ = 0;
};

}  // namespace railweave::roce
