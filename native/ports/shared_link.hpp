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

inline constexpr std::string_view kSharedPrefix = "shm:";  // prefix of the interface names of shared links

/// One of the two ends. The first process creates the file /dev/shm/railweave-NAME, and the last one removes
/// it. The kernel frees the end of a killed process. Only one thread may use an end.
///
/// The other end is not trusted, because it may write anything to the memory at any time. So this end never
/// reads its own indices back, checks the other end's indices, and copies each frame before use. Both
/// processes belong to one user. A process that truncates the file kills the other one, as a signal could.
class SharedLink {
 public:
  static constexpr std::size_t kMaxFrame = 10'300;  // in bytes
  static constexpr std::uint32_t kFrames = 512;     // that wait in one direction

  /// Takes a free end of the link `shm:NAME`. Throws std::system_error with the name: EBUSY if both ends are
  /// taken, EINVAL for a file of another size, EPERM for a file that other users own or may open.
  explicit SharedLink(const std::string& interface);
  SharedLink(const SharedLink&) = delete;
  SharedLink& operator=(const SharedLink&) = delete;
  ~SharedLink();

  /// Puts a frame of up to kMaxFrame bytes into the ring. Returns false if the ring is full.
  bool send(Bytes frame);
  bool readable() const;
  /// Copies the next frame and returns its size. Returns 0 without a frame, or for an invalid size.
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
  std::uint32_t sent_ = 0, taken_ = 0;  // frames since the link was created
};

}  // namespace railweave::ports
