// SPDX-License-Identifier: Apache-2.0
// How many chunks may be in flight, and how long to wait for a result. Both are learnt from round-trip times.
#pragma once

#include <cstdint>

#include "core/longest_lately.hpp"
#include "core/round_trip.hpp"
#include "core/time.hpp"
#include "core/timing.hpp"

namespace railweave::ina {

struct WindowOptions {
  std::uint32_t initial = 32;
  std::uint32_t least = 2;
  std::uint32_t most = 1024;
  Duration packet_time = 0;  // of a packet with lanes on the link; 0: unknown, no limit by delay
  Duration queue_target = 8 * kMillisecond;  // delay that this group alone may cause in the link's queue
  Duration longest_path = kMillisecond;      // round trips of empty networks are shorter
  Duration initial_rto = 20 * kMillisecond;
  Duration min_rto = 5 * kMillisecond;
  Duration max_rto = 100 * kMillisecond;
  Duration longest_wait = 0;  // of packets behind traffic that goes first
};

/// A result waits for the slowest rank, and for that rank's retransmissions. So only the least round trip of
/// a round measures the path. A round ends when a chunk that was sent after its beginning comes back. The
/// retransmission timeout follows RFC 6298 over these minima.
///
/// On a link of known rate the window follows K^2 / q. K is the number of chunks that fit the queue target.
/// The delay of round trips beyond the path's own is q, in chunks. A group alone keeps K chunks in the queue.
/// n groups keep K / sqrt(n) each, because all see the same queue. So the share of a group does not depend on
/// when it came, unlike with windows that grow until a threshold (LEDBAT, RFC 6817). A latecomer takes the
/// queue that it finds for a part of the path. `longest_path` bounds this error. On longer paths, the window
/// does not fill the link if the path alone takes longer than the target. Raise both options then. Loss does
/// not shrink the window, because delay shows full queues first.
///
/// The window opens by lots of chunks, the same on all ranks (compare RFC 9293, section 3.8.6.2). Chunks that
/// are sent one by one come back one by one, and each wakes every rank and the switch. Chunks in flight keep
/// the link busy meanwhile.
///
/// On a shared machine, ranks or the switch run late again and again. The target grows by this lateness,
/// because otherwise the link would idle.
class Window {
 public:
  explicit Window(const WindowOptions& options);

  std::uint32_t size() const { return size_; }
  Duration rto(Time now) const;
  Duration smoothed_rtt() const { return round_trip_.smoothed(); }
  Duration least_rtt() const { return base_; }

  /// Whether there is room for this chunk beside `held` chunks in the network. At the beginning of a lot, the
  /// whole lot must fit. After a refusal, the rest of the lot must fit.
  bool open(std::uint64_t chunk, std::uint64_t held);
  /// A result came `rtt` after transmission number `sent`. `next` is the number of the next transmission.
  void sample(Duration rtt, std::uint64_t sent, std::uint64_t next, Time now);
  /// A probe came back after `rtt`, an upper bound of the path's own delay without ranks.
  void path_sample(Duration rtt);
  /// Nothing came for the whole timeout. Doubles the timeout until there is progress.
  void back_off(Time now);
  void progress() { backed_off_ = 0; }
  /// No result came for `gap` in the middle of a call, though no chunk in flight was lost. Then a result came
  /// `rtt` after its chunk was sent.
  void late(Duration gap, Duration rtt, Time now);

 private:
  void end_round(Time now);
  std::uint32_t target(Time now) const;
  std::uint32_t wanted(Time now) const;

  WindowOptions options_;
  std::uint64_t lot_;                        // in chunks
  LongestLately lateness_{timing::kMemory};  // for which a wider window makes up
  std::uint32_t size_;                       // begins at the target without lateness
  bool limited_ = false;                     // it was full in this round
  bool full_ = false;                        // the rest of a lot did not fit when last tried
  int backed_off_ = 0;
  RoundTrip round_trip_;
  Duration base_ = kNever;
  Duration round_least_ = kNever;
  std::uint64_t round_end_ = 0;
};

}  // namespace railweave::ina
