// SPDX-License-Identifier: Apache-2.0
// Sizes of socket buffers.
#pragma once

#include <sys/socket.h>

#include <utility>

namespace railweave {

inline constexpr std::pair kReceiveBufferOptions{SO_RCVBUFFORCE, SO_RCVBUF};
inline constexpr std::pair kSendBufferOptions{SO_SNDBUFFORCE, SO_SNDBUF};

/// Sets a size beyond net.core.{r,w}mem_max if the process may, else up to that limit.
inline void set_buffer(int fd, std::pair<int, int> options, int bytes) {
  const auto [forced, limited] = options;
  if (setsockopt(fd, SOL_SOCKET, forced, &bytes, sizeof bytes) != 0)
    setsockopt(fd, SOL_SOCKET, limited, &bytes, sizeof bytes);
}

}  // namespace railweave
