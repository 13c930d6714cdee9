// SPDX-License-Identifier: Apache-2.0
// Writes packets to a file for Wireshark and tcpdump.
#pragma once

#include <cstdint>
#include <fstream>
#include <string>

#include "core/bytes.hpp"
#include "core/descriptor.hpp"
#include "core/time.hpp"

namespace railweave::ports {

/// A pcap file with nanosecond times (magic a1b23c4d, Ethernet). The file is complete after destruction.
class Capture {
 public:
  /// Throws std::system_error that names the file.
  explicit Capture(const std::string& path) : file_(path, std::ios::binary) {
    if (!file_) raise_errno("writing packets to " + path);
    // Nanoseconds; version 2.4; longest packet; Ethernet.
    for (const std::uint32_t value : {0xa1b23c4du, 2u | 4u << 16, 0u, 0u, 1u << 18, 1u}) word(value);
    file_.flush();  // a file without packets is valid too
  }

  /// `at`: nanoseconds since 1970. Writing stops after the first failed write, for example on a full disk.
  void add(Bytes packet, Time at) {
    if (!file_) return;
    word(static_cast<std::uint32_t>(at / kSecond));
    word(static_cast<std::uint32_t>(at % kSecond));
    word(static_cast<std::uint32_t>(packet.size()));
    word(static_cast<std::uint32_t>(packet.size()));
    file_.write(reinterpret_cast<const char*>(packet.data()), static_cast<std::streamsize>(packet.size()));
  }

 private:
  /// Uses this machine's byte order, which readers find out from the magic number.
  void word(std::uint32_t value) { file_.write(reinterpret_cast<const char*>(&value), sizeof value); }

  std::ofstream file_;
};

}  // namespace railweave::ports
