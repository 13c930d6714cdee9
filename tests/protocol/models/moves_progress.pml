// SPDX-License-Identifier: Apache-2.0
//
// That no group stays paused without a word, for search by spin under weak fairness: two hosts, their streams from the
// controller, and a plane.
//
// moves.pml shows that sums are right whenever hosts pause and resume, and leaves open whether they do. Here the
// controller asks, hosts answer, and what is sent may be lost with its stream LOSSES times; events are kept until a
// stream has brought them, so only answers have to be asked for again.
//
// The group's place breaks FAULTS times at most, at any time, also while the group is being placed; whether there is
// another place may change CHANGES times. One host may leave, and one may fall silent for ever.
//
// What is asserted: a group is placed anew when all hosts have answered and stand still.
// What is claimed:
//   ends      a host that pauses resumes, or is told that its plane is down, or the job ends, or it leaves;
//   returns   if there is a place from some time on, and no host leaves or is lost, hosts are not paused for ever.
// Each MUTANT_* keeps what is asserted and breaks a claim.

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
bool place = true;                   // there is one
bool intact = true;                  // the one that the group has
byte faults, changes, losses;

// The controller.
bool pausing;
bool placing, found;                 // a place is looked for; there was one
bool again;                          // the network has changed while the group is being placed
bool down;
bool ended;
bool answered[2];

// Events that a host has not had yet.
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
  :: atomic {  // a tree that is not intact is paused
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
  :: atomic {  // it looks for a place
       RUNS && pausing && again && !found && FOR_ALL(HAS_ANSWERED) && !FOR_SOME(HAS_LEFT) ->
       placing = true; again = false; found = place
     }
  :: atomic {  // and has written to the switches
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
  :: atomic {  // there is none
       RUNS && placing && !found && !again ->
       placing = false;
       if
       :: !down -> report_down()
       :: else
       fi
     }
#ifndef MUTANT_NO_DEADLINE
  :: atomic {  // a host has not answered in time: it is lost, and the job ends
       RUNS && pausing && (mute[0] && !answered[0] && !left[0] || mute[1] && !answered[1] && !left[1]) ->
       ended = true
     }
#endif
  od
}

proctype Host(byte h) {
  do
  :: atomic {  // its stream brings an event; they come in order
       !mute[h] && moved_sent[h] -> moved_sent[h] = false; paused[h] = false; told_down[h] = false
     }
  :: atomic {
       !mute[h] && !moved_sent[h] && pause_sent[h] -> pause_sent[h] = false; paused[h] = true; answers[h] = true
     }
  :: atomic {
       !mute[h] && !moved_sent[h] && !pause_sent[h] && down_sent[h] -> down_sent[h] = false; told_down[h] = true
     }
  :: atomic {  // it answers
       !mute[h] && answers[h] ->
       answers[h] = false;
       if
       :: !pausing || left[h] -> skip
       :: pausing && !left[h] -> answered[h] = true; again = true  // placed as soon as it is the last one
       fi
     }
  :: atomic {  // its stream breaks before the answer has arrived, and the new one asks again
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

// Whatever befalls them.
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
  :: atomic {  // in good order
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
  :: faults = faults  // nothing; heartbeats go on, so the whole never stands still
  od
}

init {
  atomic { run Host(0); run Host(1) }
}

ltl asserted { [](placing -> pausing) }
ltl ends { [](paused[0] -> <>(!paused[0] || told_down[0] || ended)) }
ltl returns { (<>[] place && [](!left[1] && !mute[1])) -> [](paused[0] -> <> !paused[0]) }
