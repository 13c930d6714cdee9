// SPDX-License-Identifier: Apache-2.0
//
// Ranks agree which rails are alive, for exhaustive search by spin. The model has hosts and rank 0's coordinator.
//
// Both sides send numbered states. An order is (epoch, attempt), and attempt 0 is the decision alone. A report is
// (epoch applied, attempt answered). A state's number is its place in this order, so it grows with every change. The
// network may lose, duplicate and delay any message: a receiver accepts any sent state that is newer than all states
// that it has accepted. Proposals may have any rails, and may be narrowed at any time. Hosts submit calls at any time.
//
// The model asserts at every step:
//   plan      all hosts split a call among the same rails, at any time of submission;
//   asked     a decision comes only to a host that is frozen and has answered the decision's proposal;
//   missed    no host gets a decision without the previous one;
//   boundary  when a host learns of a decision, it has submitted no call from the decision's boundary on.
// Spin also finds that the end is the only state in which nothing can happen, so nobody hangs.
// Each MUTANT_* changes one rule. Spin must then find a violation.

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

// The coordinator's newest order, and the contents of all orders.
byte order;
byte proposed[STATES];               // rails of the proposal
byte alive[EPOCHS + 1];              // rails of the decision
byte boundary[EPOCHS + 1];
byte heard[HOSTS];                   // the newest report that the coordinator has received

// A host's newest report, and all its reports with their contents.
byte report[HOSTS];
short reports[HOSTS];                // a bit for each
byte said[HOSTS * STATES];           // calls submitted at the time of a report
byte seen[HOSTS];                    // the newest order that the host has received
bool frozen[HOSTS];
byte submitted[HOSTS];

byte plan[CALLS];                    // rails of a call on the first host that submitted it; 0: none yet

hidden byte other, most, e, rails;

inline make_report(h, state) {
  report[h] = state;
  reports[h] = reports[h] | (1 << state);
  said[h * STATES + state] = submitted[h]
}

// The rails for a host's next call.
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
  :: atomic {  // an order arrives; earlier orders may have been lost
       seen[h] < order ->
       state = seen[h] + 1;
       do
       :: state < order -> state++
       :: proposed[state] != 0 || ATTEMPT(state) == 0 -> break
       od;
       obey(h, state)
     }
#ifdef MUTANT_ANY_ORDER
  :: atomic {  // an overtaken order arrives, and the host treats it as the newest
       EPOCH(seen[h]) == EPOCH(order) && ATTEMPT(seen[h]) > 1 && frozen[h] ->
       state = seen[h] - 1;
       obey(h, state)
     }
#endif
  :: atomic {  // the host answers
       frozen[h] && report[h] != seen[h] -> make_report(h, seen[h])
     }
  :: atomic {  // the host submits a call
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
  :: atomic {  // a report arrives; earlier reports may have been lost
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
  :: atomic {  // the coordinator narrows a proposal
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
