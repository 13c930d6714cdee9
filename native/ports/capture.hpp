// SPDX-License-Identifier: Apache-2.0
// Packets into a file that Wireshark and tcpdump read.
#pragma once

#include <cstdint>
#include <fstream>
#include <string>

#include "core/bytes.hpp"
#include "core/time.hpp"

namespace railweave::ports {

/// A pcap file with times in nanoseconds (magic a1b23c4d, Ethernet), whole once the object has gone.
class Capture {
 public:
  /// Throws std::system_error that names the file.
  explicit Capture(const std::string& path);

  /// `at`: nanoseconds since 1970. After a failed write, as on a full disk, nothing more is written.
  void add(Bytes packet, Time at);

  std::uint64_t packets() const { return packets_; }

 private:
  void word(std::uint32_t value);

  std::ofstream file_;
  std::uint64_t packets_ = 0;
};

}  // namespace railweave::ports
