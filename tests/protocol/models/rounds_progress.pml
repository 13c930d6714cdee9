// SPDX-License-Identifier: Apache-2.0
//
// The agreement on rails starves nobody, for search by spin under weak fairness. The model has two hosts, two rails, and
// rank 0's coordinator.
//
// rounds.pml shows that the hosts agree. Its states only grow, so it ends after a few rounds. In this model rounds go on
// for ever. Instead of numbers it stores two facts: whether a host has received the coordinator's newest order, and
// whether the coordinator has received the host's answer. Senders repeat messages until they have arrived. One of
// LOSSES + 1 copies in a row arrives.
//
// Rail 1 breaks and is repaired any number of times. Rail 0 breaks at most FAULTS times. A broken channel stays broken
// until all hosts have halted it, unless it is the last one. Hosts make one call after the other on all rails alive.
// Each host must take a step of the call while it is not frozen and these rails work.
//
// The model assumes one fact about time (kHold in core/timing.hpp): while a rail is held back, each host that can take
// a step takes one. A round is much shorter.
//
// The model asserts: a decision comes only when all hosts are frozen for its proposal, and at least one rail is left.
// It claims:
//   calls     calls complete again and again, for any number of faults of rail 1;
//   rounds    each round that begins ends in a decision;
//   returns   a rail that works from some time on is used from some time on.
// Each MUTANT_* satisfies the assertion and breaks a claim.

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
byte proposed = RAILS;               // rails proposed in the newest round
byte alive = RAILS;
mtype phase[2] = UP;
mtype hold[2] = NOT_FIT;             // the hold of a rail that is down
byte unfit[2];                       // unfit rails, by host, as last reported

// Hosts.
bool seen[2] = true;                 // the host has received the newest order
bool told[2] = true;                 // the host's answer to the newest order has arrived
bool silent[2];                      // only in a mutant: the host assumes that its answer has arrived
bool frozen[2];
byte in_use[2] = RAILS;
byte ran[2];                         // rails during whose hold the host has taken a step
bool stepped[2];                     // the host has taken its step of the current call
bool odd;                            // whether an odd number of calls is complete

byte broken;                         // broken rails
byte faults;                         // faults of rail 0

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

// Hosts always halt a rail that is left out. An interrupted trial proves nothing, so its rail stays as fit as before.
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
  :: atomic {  // a proposal follows the reports in both directions
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
       :: proposal -> new_order()  // a new attempt, because something may have changed
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

// No hold waits for a host that cannot take a step because all its rails have broken.
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
  :: broken = broken  // nothing happens to the rail; heartbeats go on, so the system never stands still
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
