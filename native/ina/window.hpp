// SPDX-License-Identifier: Apache-2.0
// How many chunks may be in flight, and how long to wait for one: learnt from round-trip times.
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
  Duration packet_time = 0;  // of a packet with lanes on the link; 0: unknown, then delay does not bind
  Duration queue_target = 8 * kMillisecond;  // what this group alone may keep in the link's queue
  Duration longest_path = kMillisecond;      // round trips of empty networks are shorter
  Duration initial_rto = 20 * kMillisecond;
  Duration min_rto = 5 * kMillisecond;
  Duration max_rto = 100 * kMillisecond;
  Duration yields = 0;  // how long packets may wait behind traffic that goes first
};

/// A result waits for the slowest rank, and for whatever that rank has to send again; so of all round trips
/// in a round (the time until something sent after its beginning comes back) only the least speaks of the
/// path. The retransmission timeout follows RFC 6298 over these.
///
/// On a link of known rate the window follows the delay q that round trips have beyond the path's own, as
/// K^2 / q with K the chunks that the queue target holds and q in chunks: alone, a group keeps K chunks in
/// the queue; n groups keep K / sqrt(n) each, because all see the same queue. So what a group gets does not
/// depend on when it came, as it does where windows grow until a threshold (LEDBAT, RFC 6817): a latecomer
/// takes the queue that it finds for a part of the path, and that error is bounded by `longest_path`. On
/// longer paths the link is not filled once the path alone takes longer than the target: raise both then.
/// Loss does not shrink the window: delay tells of full queues first.
///
/// The window opens by lots of chunks, the same on all ranks (compare RFC 9293, section 3.8.6.2): chunks that
/// are sent one by one come back one by one, and each wakes every rank and the switch. What is in flight
/// keeps the link busy meanwhile.
///
/// Where ranks or the switch run late again and again, as on a machine that others use, the target is larger
/// by as much: else the link idles meanwhile.
class Window {
 public:
  explicit Window(const WindowOptions& options);

  std::uint32_t size() const { return size_; }
  Duration rto(Time now) const;
  Duration smoothed_rtt() const { return round_trip_.smoothed(); }
  Duration least_rtt() const { return base_; }

  /// Whether there is room for this chunk, beside `held` that the network holds: at a lot's beginning for all
  /// of it, and once there was none for the rest.
  bool open(std::uint64_t chunk, std::uint64_t held);
  /// A result came `rtt` after transmission number `sent`; `next` is the number that the next one will have.
  void sample(Duration rtt, std::uint64_t sent, std::uint64_t next, Time now);
  /// A probe came back: an upper bound of the path's own delay, ranks not involved.
  void path_sample(Duration rtt);
  /// Nothing came for the whole timeout: double it, until there is progress.
  void back_off(Time now);
  void progress() { backed_off_ = 0; }
  /// In the middle of a call, with chunks in flight of which none was lost, no result came for so long; then
  /// one came `rtt` after it was asked for.
  void late(Duration gap, Duration rtt, Time now);

 private:
  void end_round(Time now);
  std::uint32_t target(Time now) const;
  std::uint32_t wanted(Time now) const;

  WindowOptions options_;
  std::uint64_t lot_;                        // in chunks
  LongestLately lateness_{timing::kMemory};  // that a wider window rides out
  std::uint32_t size_;                       // begins at a target that knows of no lateness
  bool limited_ = false;                     // it was full in this round
  bool full_ = false;                        // and the rest of a lot has not fitted since
  int backed_off_ = 0;
  RoundTrip round_trip_;
  Duration base_ = kNever;
  Duration round_least_ = kNever;
  std::uint64_t round_end_ = 0;
};

}  // namespace railweave::ina
