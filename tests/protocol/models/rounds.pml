// SPDX-License-Identifier: Apache-2.0
//
// How ranks agree which rails live, for exhaustive search by spin: hosts, and rank 0's coordinator beside them.
//
// Both sides send states, numbered: an order is (epoch, attempt), attempt 0 being the decision alone, and a report is
// (epoch applied, attempt answered). A number is the place in that order, so it grows with every change. The network may
// lose, double and delay what it likes: a receiver takes any state that was ever sent and is newer than all that it has
// taken. Which rails are proposed, when a proposal is narrowed, and when hosts submit calls, is anybody's guess.
//
// What is asserted, at every step:
//   plan      all hosts cut a call among the same rails, whenever they submit it;
//   asked     a decision comes only to a host that is frozen and has answered that very proposal;
//   missed    no host is told of a decision without the one before;
//   boundary  no host has submitted a call from the boundary on, when it learns of the decision;
// and spin finds no state but the end in which nothing can happen: nobody hangs.
// Each MUTANT_* changes one rule; spin must then find a violation.

#ifndef HOSTS
#define HOSTS 2
#endif
#ifndef EPOCHS
#define EPOCHS 2
#endif
#ifndef ATTEMPTS
#define ATTEMPTS 2
#endif
#ifndef CALLS
#define CALLS 2
#endif
#define RAILS 3                      // the set of both rails
#define PER_EPOCH (ATTEMPTS + 1)
#define STATES ((EPOCHS + 1) * PER_EPOCH)
#define EPOCH(state) ((state) / PER_EPOCH)
#define ATTEMPT(state) ((state) % PER_EPOCH)
#if HOSTS == 2
#define ALL(holds) (holds(0) && holds(1))
#else
#define ALL(holds) (holds(0) && holds(1) && holds(2))
#endif

// The coordinator's newest order, and what every order said.
byte order;
byte proposed[STATES];               // rails of the proposal
byte alive[EPOCHS + 1];              // rails of the decision
byte boundary[EPOCHS + 1];
byte heard[HOSTS];                   // the newest report that it has taken

// A host's newest report, and which ones it has made, with what they said.
byte report[HOSTS];
short reports[HOSTS];                // a bit for each
byte said[HOSTS * STATES];           // calls submitted
byte seen[HOSTS];                    // the newest order that it has taken
bool frozen[HOSTS];
byte submitted[HOSTS];

byte plan[CALLS];                    // rails among which a call was cut first; 0: not yet

hidden byte other, most, e, rails;

inline make_report(h, state) {
  report[h] = state;
  reports[h] = reports[h] | (1 << state);
  said[h * STATES + state] = submitted[h]
}

// The rails that a host cuts its next call among.
inline choose_plan(h) {
  e = EPOCH(seen[h]);
  do
  :: boundary[e] > submitted[h] -> e--
  :: else -> break
  od;
  rails = alive[e]
}

inline obey(h, state) {
  if
  :: EPOCH(state) != EPOCH(seen[h]) ->
     assert(EPOCH(state) == EPOCH(seen[h]) + 1);                        // missed
     assert(frozen[h] && EPOCH(report[h]) == EPOCH(seen[h]));           // asked
     assert(ATTEMPT(report[h]) == ATTEMPT(seen[h]));                    // asked
     assert(proposed[seen[h]] == alive[EPOCH(state)]);                  // asked
     assert(submitted[h] <= boundary[EPOCH(state)]);                    // boundary
     frozen[h] = false;
     seen[h] = state;
     make_report(h, EPOCH(state) * PER_EPOCH)
  :: else
  fi;
  seen[h] = state;
  if
  :: ATTEMPT(state) > 0 -> frozen[h] = true
  :: else
  fi
}

proctype Host(byte h) {
  byte state;
  do
  :: atomic {  // an order arrives; those before it may have been lost
       seen[h] < order ->
       state = seen[h] + 1;
       do
       :: state < order -> state++
       :: proposed[state] != 0 || ATTEMPT(state) == 0 -> break
       od;
       obey(h, state)
     }
#ifdef MUTANT_ANY_ORDER
  :: atomic {  // one that was overtaken arrives, and is taken for the newest
       EPOCH(seen[h]) == EPOCH(order) && ATTEMPT(seen[h]) > 1 && frozen[h] ->
       state = seen[h] - 1;
       obey(h, state)
     }
#endif
  :: atomic {  // it answers
       frozen[h] && report[h] != seen[h] -> make_report(h, seen[h])
     }
  :: atomic {  // it submits a call
#ifdef MUTANT_SUBMITS_WHILE_FROZEN
       submitted[h] < CALLS ->
#else
       !frozen[h] && submitted[h] < CALLS ->
#endif
       choose_plan(h);
       assert(plan[submitted[h]] == 0 || plan[submitted[h]] == rails);  // plan
       plan[submitted[h]] = rails;
       submitted[h] = submitted[h] + 1
     }
  :: atomic { EPOCH(seen[h]) == EPOCHS && submitted[h] == CALLS -> break }
  od
}

#define HAS_APPLIED(h) (EPOCH(heard[h]) == EPOCH(order))
#ifdef MUTANT_ANY_ATTEMPT
#define HAS_ANSWERED(h) (EPOCH(heard[h]) == EPOCH(order) && ATTEMPT(heard[h]) > 0)
#else
#define HAS_ANSWERED(h) (heard[h] == order)
#endif

inline find_boundary() {
  most = 0;
  other = 0;
  do
  :: other < HOSTS ->
#ifdef MUTANT_BOUNDARY_OF_ONE
     most = said[0 * STATES + heard[0]];
#else
     if
     :: said[other * STATES + heard[other]] > most -> most = said[other * STATES + heard[other]]
     :: else
     fi;
#endif
     other++
  :: else -> break
  od
}

// Reports on their way to the coordinator.
proctype Path(byte h) {
  byte state;
  do
  :: atomic {  // one arrives; those before it may have been lost
       heard[h] < report[h] ->
       state = heard[h] + 1;
       do
       :: state < report[h] -> state++
       :: reports[h] & (1 << state) -> break
       od;
       heard[h] = state
     }
  :: atomic { EPOCH(heard[h]) == EPOCHS -> break }
  od
}

proctype Coordinator() {
  byte choice;
  do
  :: atomic {  // a round begins
       ATTEMPT(order) == 0 && EPOCH(order) < EPOCHS && ALL(HAS_APPLIED) ->
       if
       :: alive[EPOCH(order)] != 1 -> choice = 1
       :: alive[EPOCH(order)] != 2 -> choice = 2
       :: alive[EPOCH(order)] != RAILS -> choice = RAILS
       fi;
       order++;
       proposed[order] = choice
     }
  :: atomic {  // a proposal is narrowed
       ATTEMPT(order) > 0 && ATTEMPT(order) < ATTEMPTS && proposed[order] == RAILS ->
       if
       :: choice = 1
       :: choice = 2
       fi;
       order++;
       proposed[order] = choice
     }
  :: atomic {  // all have answered: the decision
#ifdef MUTANT_ANSWER_OF_ONE
       ATTEMPT(order) > 0 && HAS_ANSWERED(0) ->
#else
       ATTEMPT(order) > 0 && ALL(HAS_ANSWERED) ->
#endif
       find_boundary();
       alive[EPOCH(order) + 1] = proposed[order];
       boundary[EPOCH(order) + 1] = most;
       order = (EPOCH(order) + 1) * PER_EPOCH
     }
  :: atomic { EPOCH(order) == EPOCHS && ALL(HAS_APPLIED) -> break }
  od;
#ifdef MUTANT_NEVER_ENDS
  assert(false)
#endif
}

init {
  atomic {
    alive[0] = RAILS;
    other = 0;
    do
    :: other < HOSTS -> run Host(other); run Path(other); other++
    :: else -> break
    od;
    run Coordinator()
  }
}
