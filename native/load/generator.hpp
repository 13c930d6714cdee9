// SPDX-License-Identifier: Apache-2.0
// Drives the hosts of a closed loop over UDP sockets: one thread for all, super-packets in both directions.
#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "core/time.hpp"
#include "load/contributor.hpp"

namespace railweave::load {

struct Outcome {
  std::uint64_t right = 0;  // contributions with a right result, over all workers
  std::uint64_t wrong = 0;  // results with wrong numbers, flags or marks
  std::uint64_t again = 0;  // repeated results
  std::uint64_t strangers = 0;
  std::uint64_t repeated = 0;  // contributions sent again because nothing came
  double seconds = 0;
};

/// One run. `fds` are connected UDP sockets with UDP_GRO, one per worker. The caller keeps them.
class Generator {
 public:
  Generator(const Group& group, std::vector<int> fds, unsigned segments);

  /// Loads the switch for `warm_up`, then for `duration`. The outcome counts only `duration`, except that
  /// wrong results always count. Throws std::system_error if a socket refuses to send.
  Outcome run(Duration warm_up, Duration duration);

 private:
  struct Worker {
    Contributor contributor;
    int fd;
    Run pending;  // not sent yet
    Time heard = 0;
  };

  bool send(Worker& worker);
  bool receive(Worker& worker, Time now);
  void take(Worker& worker, Bytes datagrams, std::size_t size);
  void await() const;

  static constexpr std::size_t kBufferBytes = 1 << 16;

  Group group_;
  Numbers numbers_;
  std::vector<Worker> workers_;
  unsigned segments_;
  std::vector<std::byte> headers_;
  std::array<std::byte, kBufferBytes> buffer_;
  Outcome outcome_;
};

}  // namespace railweave::load
