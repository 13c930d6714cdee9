// SPDX-License-Identifier: Apache-2.0
// How many chunks may be in flight, and how long to wait for one: learnt from round-trip times.
#pragma once

#include <cstdint>

#include "core/time.hpp"

namespace railweave::ina {

struct WindowOptions {
  std::uint32_t initial = 64;
  std::uint32_t least = 8;
  std::uint32_t most = 512;
  Duration queue_target = 8 * kMillisecond;  // delay beyond the path's own that may stand in queues
  Duration initial_rto = 20 * kMillisecond;
  Duration min_rto = 5 * kMillisecond;
  Duration max_rto = 100 * kMillisecond;
};

/// A result waits for the slowest rank, and for whatever that rank has to send again; so of all round trips
/// in a round (the time until something sent after its beginning comes back) only the least speaks of the
/// path. The retransmission timeout follows RFC 6298 over these. The window grows while the delay that it
/// causes, above the least round trip ever seen, is below a target, and shrinks in proportion to the excess
/// (after Swift, SIGCOMM'20, and LEDBAT, RFC 6817). Loss does not shrink it: delay tells of full queues
/// first.
class Window {
 public:
  explicit Window(const WindowOptions& options);

  std::uint32_t size() const { return size_; }
  Duration rto() const;
  Duration smoothed_rtt() const { return smoothed_; }
  Duration least_rtt() const { return base_; }

  /// There was a chunk to send, but the window was full.
  void limited() { limited_ = true; }
  /// A result came `rtt` after transmission number `sent`; `next` is the number that the next one will have.
  void sample(Duration rtt, std::uint64_t sent, std::uint64_t next);
  /// A probe came back: the path's own delay, ranks not involved.
  void path_sample(Duration rtt);
  /// Nothing came for the whole timeout: double it, until there is progress.
  void back_off();
  void progress() { backed_off_ = 0; }

 private:
  void smooth(Duration rtt);
  void end_round();

  WindowOptions options_;
  std::uint32_t size_;
  bool starting_ = true;  // doubles every round until a queue is seen
  bool limited_ = false;
  int backed_off_ = 0;
  Duration smoothed_ = 0;
  Duration variation_ = 0;
  Duration base_ = kNever;
  Duration round_least_ = kNever;
  std::uint64_t round_end_ = 0;
};

}  // namespace railweave::ina
