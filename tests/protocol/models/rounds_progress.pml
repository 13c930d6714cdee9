// SPDX-License-Identifier: Apache-2.0
//
// That the agreement on rails starves nobody, for search by spin under weak fairness: two hosts, two rails, and rank 0's
// coordinator.
//
// rounds.pml shows what the hosts agree on; its states only grow, so it ends after a few rounds. Here rounds go on for
// ever: a number is replaced by whether a host has taken the coordinator's newest order, and the coordinator the host's
// answer to it. What is sent is repeated until it has arrived; of LOSSES + 1 copies in a row one does.
//
// Rail 1 breaks and is mended as often as it likes; rail 0 breaks FAULTS times at most. A channel that has broken stays so
// until all hosts have halted it, unless it is the last one. One call after the other is made on all rails alive: each
// host must take a step of it while it is not frozen and these rails work.
//
// About time one thing is assumed (kHold in core/timing.hpp): while a rail is held back, each host
// that is able to takes a step. A round is much shorter.
//
// What is asserted: a decision comes when all hosts are frozen for that very proposal, and some rail is left.
// What is claimed:
//   calls     calls are completed again and again, however often rail 1 comes and goes;
//   rounds    each round that begins ends in a decision;
//   returns   a rail that works from some time on is used from some time on.
// Each MUTANT_* keeps what is asserted and breaks a claim.

#ifndef LOSSES
#define LOSSES 1
#endif
#ifndef FAULTS
#define FAULTS 1
#endif

#define BIT(rail) (1 << (rail))
#define RAILS 3                      // the set of both
#define FOR_ALL(holds) (holds(0) && holds(1))

mtype = { UP, DOWN, TRYING, PASSED };
mtype = { NOT_FIT, HELD, DUE };

// The coordinator.
bool proposal;                       // a round is under way
byte proposed = RAILS;               // in the newest round
byte alive = RAILS;
mtype phase[2] = UP;
mtype hold[2] = NOT_FIT;             // of a rail that is down
byte unfit[2];                       // rails, by host, as last reported

// Hosts.
bool seen[2] = true;                 // has taken the newest order
bool told[2] = true;                 // its answer to that has arrived
bool silent[2];                      // only in a mutant: it takes it for arrived
bool frozen[2];
byte in_use[2] = RAILS;
byte ran[2];                         // rails since whose hold began the host has taken a step
bool stepped[2];                     // in the present call
bool odd;                            // how many calls are complete

byte broken;                         // rails
byte faults;                         // of rail 0

#define HAS_TOLD(h) told[h]
#define IS_FROZEN(h) (frozen[h] && seen[h])
#define UNFIT (unfit[0] | unfit[1])
#define WAS_UP(r) (phase[r] == UP || phase[r] == PASSED)
#define JOINED ((WAS_UP(0) -> 1 : 0) | (WAS_UP(1) -> 2 : 0))
#define LOWEST(set) ((set) & 1 -> 1 : (set))
#define SURVIVORS(set) (((set) & ~UNFIT) -> ((set) & ~UNFIT) : LOWEST(set))
#define CAN_STEP(h) (!frozen[h] && !(in_use[h] & broken) && !stepped[h])
#define HAS_RUN(h) (!frozen[h] && ((ran[h] & BIT(r)) || !CAN_STEP(h)))

inline new_order() {
  seen[0] = false; seen[1] = false;
  told[0] = false; told[1] = false;
  silent[0] = false; silent[1] = false
}

// Hosts halt a rail that is left out whatever they do. An interrupted trial proves nothing: its rail stays as fit as it was.
inline leave_out(r) {
  if
  :: !(proposed & BIT(r)) && (phase[r] == UP || (UNFIT & BIT(r))) -> phase[r] = DOWN; hold[r] = NOT_FIT
  :: !(proposed & BIT(r)) && phase[r] != UP && !(UNFIT & BIT(r)) -> phase[r] = DOWN
  :: else
  fi
}

inline propose() {
  leave_out(0);
  leave_out(1);
  proposal = true;
  new_order()
}

inline decide() {
  assert(FOR_ALL(IS_FROZEN));
  alive = proposed;
  proposal = false;
  if
  :: alive & 1 -> phase[0] = UP
  :: else
  fi;
  if
  :: alive & 2 -> phase[1] = UP
  :: else
  fi;
  new_order()
}

#define SETTLED (!proposal && FOR_ALL(HAS_TOLD))

active proctype Coordinator() {
  do
#ifdef MUTANT_WIDENS
  :: atomic {  // a proposal follows what is reported, in both directions
       proposal && SURVIVORS(RAILS) != proposed -> proposed = SURVIVORS(RAILS); propose()
     }
#else
  :: atomic { proposal && SURVIVORS(proposed) != proposed -> proposed = SURVIVORS(proposed); propose() }
#endif
  :: atomic { proposal && SURVIVORS(proposed) == proposed && FOR_ALL(HAS_TOLD) -> decide() }
  :: atomic { SETTLED && SURVIVORS(JOINED) != alive -> proposed = SURVIVORS(JOINED); propose() }
  od
}

#define FIT(r) (!(UNFIT & BIT(r)))

// The coordinator's judgement of a rail that is not up.
proctype Probation(byte r) {
  do
  :: atomic { SETTLED && phase[r] == DOWN && !FIT(r) && hold[r] != NOT_FIT -> hold[r] = NOT_FIT }
  :: atomic {
       SETTLED && phase[r] == DOWN && FIT(r) && hold[r] == NOT_FIT ->
#ifdef MUTANT_NO_HOLD
       hold[r] = DUE
#else
       hold[r] = HELD;
       ran[0] = ran[0] & ~BIT(r);
       ran[1] = ran[1] & ~BIT(r)
#endif
     }
  :: atomic { SETTLED && phase[r] == DOWN && FIT(r) && hold[r] == DUE -> phase[r] = TRYING; new_order() }
  :: atomic { SETTLED && (phase[r] == TRYING || phase[r] == PASSED) && !FIT(r) -> phase[r] = DOWN; hold[r] = NOT_FIT; new_order() }
  :: atomic { SETTLED && phase[r] == TRYING && FIT(r) && !(broken & BIT(r)) -> phase[r] = PASSED }
  od
}

// A rail has been fit for long enough.
proctype Timer(byte r) {
  do
  :: atomic { hold[r] == HELD && FOR_ALL(HAS_RUN) -> hold[r] = DUE }
  od
}

proctype Orders(byte h) {
  bit lost;
  do
  :: atomic { !seen[h] && lost < LOSSES -> lost++ }
  :: atomic {
       !seen[h] ->
       lost = 0;
       seen[h] = true;
       if
       :: proposal -> frozen[h] = true; in_use[h] = in_use[h] & proposed
       :: else -> frozen[h] = false; in_use[h] = alive
       fi
     }
  od
}

#define REPORTS(h) (seen[h] && (!told[h] || unfit[h] != broken))

proctype Reports(byte h) {
  bit lost;
  do
#ifdef MUTANT_SAYS_ONCE
  :: atomic { REPORTS(h) && !silent[h] && lost < LOSSES -> lost++; silent[h] = true }
#else
  :: atomic { REPORTS(h) && lost < LOSSES -> lost++ }
#endif
  :: atomic {
       REPORTS(h) && !silent[h] ->
       lost = 0;
       told[h] = true;
       unfit[h] = broken;
#ifdef MUTANT_BEGINS_ANEW
       if
       :: proposal -> new_order()  // with another attempt, as something may have changed
       :: else
       fi
#endif
     }
  od
}

proctype Host(byte h) {
  do
  :: atomic {
       CAN_STEP(h) ->
       stepped[h] = true;
       ran[h] = RAILS;
       if
       :: stepped[1 - h] -> stepped[0] = false; stepped[1] = false; odd = !odd
       :: else
       fi
     }
  od
}

#define IN_USE (in_use[0] | in_use[1] | proposed)
#define CAN_BE_MENDED(r) ((broken & BIT(r)) && \
  (phase[r] == DOWN && !(IN_USE & BIT(r)) || !proposal && alive == BIT(r) && in_use[0] == alive && in_use[1] == alive))

// No hold waits for a host that can take no step as all its rails have broken.
inline break_rail(r) {
  broken = broken | BIT(r);
  if
  :: !(in_use[0] & ~broken) -> ran[0] = RAILS
  :: else
  fi;
  if
  :: !(in_use[1] & ~broken) -> ran[1] = RAILS
  :: else
  fi
}

active proctype Rail0() {
  do
  :: atomic { faults < FAULTS && !(broken & 1) -> faults++; break_rail(0) }
  :: atomic { CAN_BE_MENDED(0) -> broken = broken & ~1 }
  od
}

active proctype Rail1() {
  do
  :: atomic { !(broken & 2) -> break_rail(1) }
  :: atomic { CAN_BE_MENDED(1) -> broken = broken & ~2 }
  :: broken = broken  // nothing happens to it; heartbeats go on, so the whole never stands still
  od
}

init {
  atomic {
    run Orders(0); run Orders(1); run Reports(0); run Reports(1); run Host(0); run Host(1);
    run Probation(0); run Probation(1); run Timer(0); run Timer(1)
  }
}

ltl asserted { [](proposed & RAILS) }
ltl calls { []<> odd && []<> !odd }
ltl rounds { [](proposal -> <> !proposal) }
ltl returns { <>[] !(broken & 2) -> <>[] (phase[1] == UP) }
