// SPDX-License-Identifier: Apache-2.0
// Which consecutive packets may leave as one UDP super-packet, so that the receiver, or the kernel on its
// behalf, cuts it into the very packets that the program sent.
#pragma once

#include <cstddef>

#include "core/bytes.hpp"
#include "core/headers.hpp"
#include "core/offload.hpp"

namespace railweave::ports {

/// A run of like UDP/IPv4 packets. The owner keeps the bytes: the first packet whole, of the others the
/// payload.
///
/// Packets are alike when only IP id, lengths and checksums differ; every one but the last has the same size.
/// The kernel writes lengths, ids that count up, and both checksums when it cuts; so a packet joins only if
/// both checksums are those that the kernel writes (a wrong one must stay wrong) and its id follows the one
/// before. Unless bytes are to stay exact, there are two exceptions, and packets so rewritten are counted:
/// - packets without UDP checksum run together and get one, which RFC 768 allows: zero only says that the
///   sender made none;
/// - atomic datagrams (DF set) are numbered anew: their id means nothing (RFC 6864). RoCEv2 disagrees with
///   the RFC, its ICRC covers the id: on its port ids always count.
class UdpRun {
 public:
  static constexpr std::size_t kHeaderSize = kEthernetSize + kIpv4Size + kUdpSize;

  /// `max_size`: of a whole super-packet from its IP header on, in bytes. `exact`: no packet is rewritten.
  UdpRun(std::size_t max_size, bool exact) : max_size_(max_size), exact_(exact) {}

  /// Begins with `packet`; nothing will join when it cannot be part of any run.
  void start(Bytes packet);

  /// Whether `packet` follows in the run that `head`, the stored first packet, began; if so it is counted in.
  bool join(Bytes head, Bytes packet);

  void close() {
    open_ = false;
    packets_ = 0;
  }

  std::size_t packets() const { return packets_; }
  /// Packets that the kernel gives another id, or a checksum that they did not have.
  std::size_t rewritten() const { return without_checksum_ && packets_ > 1 ? packets_ : renumbered_; }

  /// Rewrites the headers of a stored run of more than one packet; `frame` is all of it.
  Offload seal(MutableBytes frame) const;

 private:
  std::size_t max_size_;
  bool exact_;
  std::size_t payload_ = 0;  // of every packet but a shorter last one
  std::size_t size_ = 0;     // from the IP header on
  std::size_t packets_ = 0;
  std::size_t renumbered_ = 0;
  bool without_checksum_ = false;
  bool open_ = false;
};

}  // namespace railweave::ports
