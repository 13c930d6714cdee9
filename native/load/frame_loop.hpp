// SPDX-License-Identifier: Apache-2.0
// Sends one frame through a switch repeatedly: a closed loop over packet sockets, for any program.
#pragma once

#include <cstdint>

#include "core/bytes.hpp"
#include "core/time.hpp"
#include "ports/shared_link.hpp"

namespace railweave::load {

struct FrameCounts {
  std::uint64_t right = 0;  // frames that came back as expected
  std::uint64_t wrong = 0;  // frames of the expected size with other bytes
  std::uint64_t lost = 0;   // frames without an answer for a while
  double seconds = 0;
};

/// Keeps `window` copies of `frame` in flight for `duration`, from packet socket `out` to packet socket `in`,
/// where `expected` arrives. Other traffic does not count. The caller keeps the sockets. Throws
/// std::system_error if a socket refuses to send.
FrameCounts loop_frame(int out, int in, Bytes frame, Bytes expected, unsigned window, Duration duration);

/// The same over ends of shared links.
FrameCounts loop_frame(ports::SharedLink& out, ports::SharedLink& in, Bytes frame, Bytes expected,
                       unsigned window, Duration duration);

}  // namespace railweave::load
