// SPDX-License-Identifier: Apache-2.0
// Every time-out of failure and recovery, and what must hold between them. docs/recovery.md has the table.
#pragma once

#include "core/time.hpp"

namespace railweave::recovery::timing {

// --- silence
inline constexpr Duration kHeartbeat = 10 * kMillisecond;     // from each rank to its successor, on each rail
inline constexpr Duration kLeastSilence = 60 * kMillisecond;  // before a rail is suspected, at least
inline constexpr Duration kMostSilence = 150 * kMillisecond;  // at most, while processes run in time
inline constexpr Duration kMostLeeway = 450 * kMillisecond;   // more than that, while they do not
inline constexpr Duration kMemory = 5 * kSecond;       // gaps and lateness count for so long, to twice that
inline constexpr Duration kPeerTimeout = 5 * kSecond;  // silence on all rails after which a rank is dead

// Patience is the longest gap seen lately times 5/2, and every patience grows by the longest lateness of a
// process seen lately, times 4.
inline constexpr Duration kGapFactor = 5;
inline constexpr Duration kGapDivisor = 2;
inline constexpr Duration kLeewayFactor = 4;

// --- what is slow or stands still
inline constexpr Duration kAwake = 200 * kMillisecond;  // no newer tick of a rank: it may stand still
inline constexpr Duration kStandstill =
    50 * kMillisecond;                      // between two turns of the own loop: it stood still
inline constexpr Duration kSlowFactor = 3;  // times the expected time of a call, or
inline constexpr Duration kSlowAllowance =
    100 * kMillisecond;                         // so much more: the last rail of a call is slow
inline constexpr Duration kUnknownFactor = 10;  // of the time that the others took, or
inline constexpr Duration kUnknownLeast = 200 * kMillisecond;  // so long, where nothing was expected
inline constexpr Duration kStuck = kSecond;  // without progress on a channel that has a call
inline constexpr Duration kPrepareDelay =
    200 * kMillisecond;  // a peer that halts for a round is so much ahead

// --- coming back
inline constexpr Duration kHold = 250 * kMillisecond;  // an excluded rail is fit for so long before its trial
inline constexpr Duration kMostHold = kSecond;         // doubles up to this with each failure
inline constexpr Duration kTrial = 400 * kMillisecond;  // for a restart with its trial, on all ranks
inline constexpr Duration kHealth = 3 * kSecond / 2;    // up for so long, a rail's failures are forgotten

// Two heartbeats may be lost, and one late, before patience ends.
static_assert(4 * kHeartbeat <= kLeastSilence);
static_assert(kLeastSilence < kMostSilence);
// A dead rail is excluded within 200 ms where processes run in time: silence, a heartbeat until it is looked
// at, and a round with one repetition.
static_assert(kMostSilence + 3 * kHeartbeat < 200 * kMillisecond);
// What is silent on one rail is suspected before it counts as stuck, and long before a rank counts as dead.
static_assert(kMostSilence + kMostLeeway < kStuck);
static_assert(kStuck < kPeerTimeout);
// The own loop is known to have stood still before anybody's silence could be taken for a fault.
static_assert(kStandstill < kLeastSilence && kHeartbeat < kStandstill);
// A decision is under way when a peer's halted channel is taken for a broken one.
static_assert(kMostSilence < kPrepareDelay && kPrepareDelay < kStuck);
static_assert(kMostSilence < kAwake && kAwake < kStuck);
// A rail that flaps is down for longer each time, and one that holds is trusted again after its longest hold.
static_assert(kHold < kMostHold && kMostHold < kHealth);
static_assert(kMostSilence < kHold);
static_assert(kMostHold < kPeerTimeout && kTrial < kMostHold);

}  // namespace railweave::recovery::timing
