// SPDX-License-Identifier: Apache-2.0
//
// No group stays paused without an event, for search by spin under weak fairness. The model has two hosts, their streams
// from the controller, and a plane.
//
// moves.pml shows that sums are right for any pauses, but not that paused hosts resume. In this model the controller
// asks and hosts answer. A stream may break LOSSES times with the messages on it. The controller keeps events until a
// stream has delivered them, so it has to ask again only for answers.
//
// The group's place breaks at most FAULTS times, at any time, also while the controller places the group. The existence
// of another place changes at most CHANGES times. One host may leave, and one may become silent for ever.
//
// The model asserts: the controller places a group only after all hosts have answered and paused.
// It claims:
//   ends      a host that pauses resumes, or hears that its plane is down, or the job ends, or the host leaves;
//   returns   if a place exists from some time on, and no host leaves or is lost, no host is paused for ever.
// Each MUTANT_* satisfies the assertion and breaks a claim.

#ifndef LOSSES
#define LOSSES 1
#endif
#ifndef FAULTS
#define FAULTS 2
#endif
#ifndef CHANGES
#define CHANGES 2
#endif

#define FOR_ALL(holds) (holds(0) && holds(1))
#define FOR_SOME(holds) (holds(0) || holds(1))

// The network.
bool place = true;                   // a place exists
bool intact = true;                  // the group's place works
byte faults, changes, losses;

// The controller.
bool pausing;
bool placing, found;                 // the controller looks for a place; it has found one
bool again;                          // the controller has to look for a place again
bool down;
bool ended;
bool answered[2];

// Events that a host has not received yet.
bool pause_sent[2], moved_sent[2], down_sent[2];

// Hosts.
bool paused[2], answers[2], told_down[2], left[2], mute[2];

#define HAS_ANSWERED(h) answered[h]
#define IS_PAUSED(h) paused[h]
#define HAS_LEFT(h) left[h]
#define IS_MUTE(h) mute[h]
#define RUNS (!ended)

inline report_down() {
  down = true;
  down_sent[0] = true; down_sent[1] = true
}

active proctype Controller() {
  do
  :: atomic {  // the controller pauses a tree that is not intact
       RUNS && !intact && !pausing ->
       pausing = true; again = false; down = false;
       answered[0] = false; answered[1] = false;
       pause_sent[0] = true; pause_sent[1] = true;
#ifndef MUTANT_WAITS_FOR_LEAVER
       if
       :: FOR_SOME(HAS_LEFT) -> report_down()
       :: else
       fi
#endif
     }
  :: atomic {  // the controller looks for a place
       RUNS && pausing && again && !found && FOR_ALL(HAS_ANSWERED) && !FOR_SOME(HAS_LEFT) ->
       placing = true; again = false; found = place
     }
  :: atomic {  // the controller has written to the switches
       RUNS && placing && found ->
       found = false;
       if
       :: place ->
          assert(FOR_ALL(HAS_ANSWERED) && FOR_ALL(IS_PAUSED));
          placing = false; pausing = false; intact = true; down = false;
          moved_sent[0] = true; moved_sent[1] = true
       :: else -> again = true
       fi
     }
  :: atomic {  // no place exists
       RUNS && placing && !found && !again ->
       placing = false;
       if
       :: !down -> report_down()
       :: else
       fi
     }
#ifndef MUTANT_NO_DEADLINE
  :: atomic {  // a host has not answered in time: the host is lost, and the job ends
       RUNS && pausing && (mute[0] && !answered[0] && !left[0] || mute[1] && !answered[1] && !left[1]) ->
       ended = true
     }
#endif
  od
}

proctype Host(byte h) {
  do
  :: atomic {  // the stream delivers an event; events come in order
       !mute[h] && moved_sent[h] -> moved_sent[h] = false; paused[h] = false; told_down[h] = false
     }
  :: atomic {
       !mute[h] && !moved_sent[h] && pause_sent[h] -> pause_sent[h] = false; paused[h] = true; answers[h] = true
     }
  :: atomic {
       !mute[h] && !moved_sent[h] && !pause_sent[h] && down_sent[h] -> down_sent[h] = false; told_down[h] = true
     }
  :: atomic {  // the host answers
       !mute[h] && answers[h] ->
       answers[h] = false;
       if
       :: !pausing || left[h] -> skip
       :: pausing && !left[h] -> answered[h] = true; again = true  // after the last answer the group is placed
       fi
     }
  :: atomic {  // the stream breaks before the answer has arrived, and the new stream asks again
       !mute[h] && answers[h] && losses < LOSSES ->
       losses++;
#ifdef MUTANT_ASKS_ONCE
       answers[h] = false
#else
       answers[h] = false; pause_sent[h] = pausing && !answered[h]
#endif
     }
  od
}

// Faults and changes.
active proctype Network() {
  do
  :: atomic { faults < FAULTS && intact && !pausing -> faults++; intact = false }
  :: atomic {
       changes < CHANGES ->
       changes++;
       place = !place;
       if
#ifdef MUTANT_FORGETS_CHANGES
       :: pausing && !placing -> again = true
       :: placing -> skip
#else
       :: pausing -> again = true
#endif
       :: !pausing -> skip
       fi
     }
  :: atomic {  // a host leaves in the normal way
       !FOR_SOME(HAS_LEFT) && !FOR_SOME(IS_MUTE) ->
       left[1] = true;
#ifndef MUTANT_WAITS_FOR_LEAVER
       if
       :: pausing -> report_down()
       :: else
       fi
#endif
     }
  :: atomic { !FOR_SOME(HAS_LEFT) && !FOR_SOME(IS_MUTE) -> mute[1] = true }
  :: faults = faults  // nothing happens; heartbeats go on, so the system never stands still
  od
}

init {
  atomic { run Host(0); run Host(1) }
}

ltl asserted { [](placing -> pausing) }
ltl ends { [](paused[0] -> <>(!paused[0] || told_down[0] || ended)) }
ltl returns { (<>[] place && [](!left[1] && !mute[1])) -> [](paused[0] -> <> !paused[0]) }
