// SPDX-License-Identifier: Apache-2.0
// All time-outs of failure and recovery, and the inequalities between them. docs/design/recovery.md has the
// table.
#pragma once

#include "core/time.hpp"

namespace railweave::timing {

// --- silence
inline constexpr Duration kHeartbeat = 10 * kMillisecond;     // from each rank to its successor, on each rail
inline constexpr Duration kLeastSilence = 60 * kMillisecond;  // before a rail is suspected, at least
inline constexpr Duration kMostSilence = 150 * kMillisecond;  // at most, while processes run in time
inline constexpr Duration kMostLeeway = 450 * kMillisecond;   // more than that, while they do not
inline constexpr Duration kMemory = 5 * kSecond;       // gaps and lateness count for so long, to twice that
inline constexpr Duration kSettling = kSecond;         // of heartbeats, before a rail is known
inline constexpr Duration kPeerTimeout = 5 * kSecond;  // silence on all rails after which a rank is dead

// Patience is the longest gap seen lately times 5/2, and every patience grows by the longest lateness of a
// process seen lately, times 2.
inline constexpr Duration kGapFactor = 5;
inline constexpr Duration kGapDivisor = 2;
inline constexpr Duration kLeewayFactor = 2;

// --- what is slow or stands still
inline constexpr Duration kStandstill =
    50 * kMillisecond;  // without a turn of the own loop or a tick of a rank: the rest is no time that it ran
inline constexpr Duration kSlowFactor = 2;  // times the expected time of a call, or
inline constexpr Duration kSlowAllowance =
    100 * kMillisecond;                         // so much more: the last rail of a call is slow
inline constexpr Duration kUnknownFactor = 10;  // of the time that the others took, or
inline constexpr Duration kUnknownLeast = 200 * kMillisecond;  // so long, where nothing was expected
inline constexpr Duration kAloneAllowance =
    200 * kMillisecond;                      // likewise where no other rail shows how long it takes
inline constexpr Duration kStuck = kSecond;  // without progress on a channel that has a call
inline constexpr Duration kPrepareDelay =
    200 * kMillisecond;  // a peer that halts for a round is so much ahead

// --- coming back
inline constexpr Duration kHold = 250 * kMillisecond;  // an excluded rail is fit for so long before its trial
inline constexpr Duration kMostHold = kSecond;         // doubles up to this with each failure
inline constexpr Duration kTrial = 400 * kMillisecond;  // for a restart with its trial, on all ranks
inline constexpr Duration kHealth = 3 * kSecond / 2;    // up for so long, a rail's failures are forgotten

// --- within a rail
inline constexpr Duration kDialPatience = 250 * kMillisecond;  // with a TCP dial that nobody answers
inline constexpr Duration kMostDialPause = 80 * kMillisecond;  // between two dials, at most
inline constexpr Duration kProbeInterval =
    40 * kMillisecond;  // between two attempts at an RDMA peer, after a restart
inline constexpr Duration kRepetition =
    250 * kMillisecond;  // between RDMA retransmissions, after the first few
inline constexpr Duration kOverdue =
    20 * kMillisecond;  // until a short RDMA message that is awaited is asked for, to twice that
inline constexpr Duration kFirstTimeout =
    60 * kSecond;                                // for an RDMA peer's first answer: ranks come one by one
inline constexpr Duration kShowTime = kSecond;   // for peers to say which calls they make, after a mismatch
inline constexpr Duration kLeftGrace = kSecond;  // for results after a peer has left in good order
inline constexpr Duration kRedoTime =
    400 * kMillisecond;  // for the controller to pause a tree that has a wrong sum

// Two heartbeats may be lost, and one late, before patience ends.
static_assert(4 * kHeartbeat <= kLeastSilence);
static_assert(kLeastSilence < kMostSilence);
// A dead rail is excluded within 200 ms where processes run in time. This covers the silence, a heartbeat
// until the next check, and a round with one repetition.
static_assert(kMostSilence + 3 * kHeartbeat < 200 * kMillisecond);
// A peer that is silent on one rail is suspected before its channel counts as stuck, and long before the rank
// counts as dead.
static_assert(kMostSilence + kMostLeeway < kStuck);
static_assert(kStuck < kPeerTimeout);
// A late tick is no standstill, and the part of a standstill that counts is shorter than any patience.
static_assert(4 * kHeartbeat <= kStandstill && kStandstill < kSlowAllowance);
static_assert(kSettling <= kMemory);
// A decision is under way when a peer's halted channel is taken for a broken one.
static_assert(kMostSilence < kPrepareDelay && kPrepareDelay < kStuck);
// A rail that flaps is down for longer each time, and one that holds is trusted again after its longest hold.
static_assert(kHold < kMostHold && kMostHold < kHealth);
static_assert(kMostSilence < kHold);
static_assert(kMostHold < kPeerTimeout && kTrial < kMostHold);
// A rail that is restarted tries its peers at least twice before its trial ends.
static_assert(kDialPatience + kMostDialPause < kTrial && 2 * kProbeInterval < kTrial);
// A retransmission that is lost is repeated several times before the peer counts as dead.
static_assert(4 * kRepetition < kPeerTimeout && kPeerTimeout < kFirstTimeout);
// A rank that makes other calls, or has left, is named before it could count as dead.
static_assert(kShowTime < kPeerTimeout && kLeftGrace < kPeerTimeout);

}  // namespace railweave::timing
