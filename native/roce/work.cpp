// SPDX-License-Identifier: Apache-2.0
#include "roce/work.hpp"

#include <array>
#include <stdexcept>
#include <string>

namespace railweave::roce {
namespace {

void require(bool condition, const char* field, std::int64_t value, const char* allowed) {
  if (condition) return;
  throw std::invalid_argument(std::string("queue pair option ") + field + " = " + std::to_string(value) +
                              ": must be " + allowed);
}

}  // namespace

void QueuePairOptions::check() const {
  const bool power_of_two = (path_mtu & (path_mtu - 1)) == 0;
  require(qpn > 1 && qpn <= 0xff'ffff, "qpn", qpn, "2 to 2^24 - 1");
  require(peer_qpn > 1 && peer_qpn <= 0xff'ffff, "peer_qpn", peer_qpn, "2 to 2^24 - 1");
  require(send_psn <= 0xff'ffff, "send_psn", send_psn, "below 2^24");
  require(receive_psn <= 0xff'ffff, "receive_psn", receive_psn, "below 2^24");
  require(power_of_two && path_mtu >= 256 && path_mtu <= 4096, "path_mtu",
          static_cast<std::int64_t>(path_mtu), "256, 512, 1024, 2048 or 4096");
  require(min_window >= 1, "min_window", min_window, "at least 1");
  require(window >= min_window && window <= 1 << 20, "window", window, "min_window to 2^20 packets");
  require(window_time >= 0, "window_time", window_time, "0 or more");
  require(min_timeout > 0 && max_timeout >= min_timeout, "min_timeout", min_timeout,
          "positive and at most max_timeout");
  require(first_timeout > 0, "first_timeout", first_timeout, "positive");
  require(retries >= 0, "retries", retries, "0 or more");
  require(rnr_retries >= 0 && rnr_retries <= 7, "rnr_retries", rnr_retries, "0 to 7");
  require(rnr_timer < 32, "rnr_timer", rnr_timer, "a code below 32");
}

Duration rnr_delay(std::uint8_t code) {
  static constexpr std::array<std::int32_t, 32> kTensOfMicroseconds = {
      65536, 1,   2,   3,   4,    6,    8,    12,   16,   24,   32,   48,    64,    96,    128,   192,
      256,   384, 512, 768, 1024, 1536, 2048, 3072, 4096, 6144, 8192, 12288, 16384, 24576, 32768, 49152};
  return kTensOfMicroseconds[code & 0x1f] * 10 * kMicrosecond;
}

}  // namespace railweave::roce
