// SPDX-License-Identifier: Apache-2.0
// A link between two processes of one host: a ring of frames in each direction, in shared memory.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "core/bytes.hpp"
#include "core/descriptor.hpp"

namespace railweave::ports {

inline constexpr std::string_view kSharedPrefix = "shm:";  // of the name of such an interface

/// One of the two ends. The first process creates the file /dev/shm/railweave-NAME, and the last one removes
/// it. The kernel frees the place of a process that is killed. One thread may use an end.
///
/// The other end is not trusted: it may write anything to the memory at any time. So indices of this end are
/// never read back, those of the other end are checked, and a frame is copied before anything looks at it.
/// Both processes are of one user: one that truncates the file ends the other, as a signal would.
class SharedLink {
 public:
  static constexpr std::size_t kMaxFrame = 10'300;  // in bytes
  static constexpr std::uint32_t kFrames = 512;     // that wait in one direction

  /// Takes a free end of the link `shm:NAME`. Throws std::system_error that names it: EBUSY if it has two
  /// ends, EINVAL for a file of another size, EPERM for a file that other users own or may open.
  explicit SharedLink(const std::string& interface);
  SharedLink(const SharedLink&) = delete;
  SharedLink& operator=(const SharedLink&) = delete;
  ~SharedLink();

  /// Puts a frame of up to kMaxFrame bytes into the ring; false if the ring is full.
  bool send(Bytes frame);
  bool readable() const;
  /// Copies the next frame and returns its size; 0 without a frame, or for an invalid size.
  std::size_t receive(MutableBytes to);

 private:
  struct Memory;
  struct Ring;

  bool take_end(unsigned end) const;
  bool named() const;

  std::string path_;
  Descriptor file_;
  Memory* memory_ = nullptr;
  Ring* out_ = nullptr;
  Ring* in_ = nullptr;
  std::uint32_t sent_ = 0, taken_ = 0;  // frames since the link exists
};

}  // namespace railweave::ports
