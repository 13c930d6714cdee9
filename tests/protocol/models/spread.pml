// SPDX-License-Identifier: Apache-2.0
//
// Multicast broadcasts one after the other, for exhaustive search by spin: READY, sending, fetching, passing on,
// and the tasks kept for peers. Task t is a broadcast of CHUNKS chunks from rank t mod HOSTS. Ranks enter READY of
// the next task before they are done with the current one, up to TWO at a time.
//
// A multicast chunk may arrive at any time, also long after its task, or never. This is independent for each rank.
// Questions and answers may be lost LOSSES times in total. An answer may come late, and may come twice. A rank asks
// its left neighbour or the owner, at any time.
//
// The model asserts at every step:
//   ready    nobody sends before all ranks have entered the task;
//   task     a rank places a chunk only in the chunk's own task;
//   value    the chunk has the contents of the owner's memory at the start of the task;
//   kept     if a rank still needs a chunk, its owner knows the task.
// Spin also finds that the end is the only state in which nothing can happen. Where it searches for fair runs that go
// on for ever, it finds none. So nobody hangs. Each MUTANT_* changes one rule. Spin must then find a violation.

#ifndef HOSTS
#define HOSTS 3
#endif
#ifndef TASKS
#define TASKS 3
#endif
#ifndef CHUNKS
#define CHUNKS 1
#endif
#ifndef LOSSES
#define LOSSES 1
#endif
#define TWO 2
#define ALL ((1 << CHUNKS) - 1)
#define OWNER(t) ((t) % HOSTS)
#define LEFT(r) (((r) + HOSTS - 1) % HOSTS)
#define AT(r, t) ((r) * TASKS + (t))
#define HAS(r, t, c) (have[AT(r, t)] & (1 << (c)))
#define NOBODY HOSTS

byte ready[TASKS];                   // ranks that have entered
byte most[TASKS];                    // the most earlier tasks that one of these ranks had not done
byte sent[TASKS];                    // chunks that the owner has sent
byte losses;

byte entered[HOSTS];                 // tasks that a rank has entered READY of, …
byte started[HOSTS];                 // … that it has started, …
byte done[HOSTS];                    // … done, …
byte oldest[HOSTS];                  // … and forgotten
byte have[HOSTS * TASKS];            // chunks in place, or for the owner chunks sent: a bit for each
byte missed[HOSTS * TASKS];          // multicast chunks that a rank will never get

byte asked[HOSTS];                   // the rank that has this rank's question, or NOBODY
byte about[HOSTS];                   // the chunk of the question; the task is the oldest that is not done
byte asked_task[HOSTS];
bool answered[HOSTS];                // an answer is under way, or has come and may come again
byte answer_task[HOSTS], answer_chunk[HOSTS];
bool answer_right[HOSTS];

hidden byte i, j;

inline place(rank, into, which, its, right) {
  assert((its) == (into));                                               // task
  assert(right);                                                         // value
  have[AT(rank, into)] = have[AT(rank, into)] | (1 << (which))
}

inline answer(r, right) {
  answered[r] = true;
  answer_task[r] = asked_task[r];
  answer_chunk[r] = about[r];
  answer_right[r] = right;
  asked[r] = NOBODY
}

// Whether a rank lacks a chunk of its oldest unfinished task that was sent, and no answer with the chunk is under way.
#define LACKS(r, c) (asked[r] == NOBODY && done[r] < started[r] && OWNER(done[r]) != r && sent[done[r]] > c && \
  (missed[AT(r, done[r])] & (1 << c)) && !HAS(r, done[r], c) && \
  !(answered[r] && answer_task[r] == done[r] && answer_chunk[r] == c))

inline ask(r, c) {
  about[r] = c;
  asked_task[r] = done[r];
  if
  :: asked[r] = LEFT(r)
#ifndef MUTANT_ASKS_LEFT_ONLY
  :: asked[r] = OWNER(done[r])
#endif
  fi
}

// The owner sends to all.
proctype Sender(byte t) {
  do
#ifdef MUTANT_NO_READY
  :: atomic { sent[t] < CHUNKS && entered[OWNER(t)] > t ->
#else
  :: atomic { sent[t] < CHUNKS && started[OWNER(t)] > t ->
#endif
       assert(ready[t] == HOSTS);                                        // ready
       have[AT(OWNER(t), t)] = have[AT(OWNER(t), t)] | (1 << sent[t]);
       sent[t] = sent[t] + 1
     }
  :: atomic { sent[t] == CHUNKS -> break }
  od
}

inline arrive(who, task, chunk) {
  if
  :: started[who] > task && done[who] <= task && !HAS(who, task, chunk) -> place(who, task, chunk, task, true)
#ifdef MUTANT_ANY_TASK
  :: done[who] > task && done[who] < started[who] -> place(who, done[who], chunk, task, true)
#endif
  :: else
  fi
}

// A chunk on its way to a rank. It arrives in time, before READY's result, late, or never.
proctype Way(byte r, t, c) {
  if
  :: atomic { sent[t] > c && started[r] > t -> arrive(r, t, c) }
  :: atomic { sent[t] > c -> missed[AT(r, t)] = missed[AT(r, t)] | (1 << c) };
     if
     :: atomic { arrive(r, t, c) }
     :: skip
     fi
  fi
}

proctype Rank(byte r) {
  byte t, c;
  do
  :: atomic {  // the rank enters READY of the next task
       entered[r] < TASKS && entered[r] - done[r] < TWO ->
       t = entered[r];
       if
       :: t - done[r] > most[t] -> most[t] = t - done[r]
       :: else
       fi;
       ready[t] = ready[t] + 1;
       entered[r] = entered[r] + 1;
       t = 0
     }
  :: atomic {  // READY's result comes: the rank forgets tasks that all have done
       started[r] < TASKS && ready[started[r]] == HOSTS ->
       t = started[r];
#ifdef MUTANT_OWN_UNFINISHED
       if
       :: done[r] > oldest[r] -> oldest[r] = done[r]
       :: else
       fi;
#else
       if
       :: t - most[t] > oldest[r] -> oldest[r] = t - most[t]
       :: else
       fi;
#endif
       started[r] = started[r] + 1;
       t = 0
     }
  :: atomic {  // all chunks are in place
       done[r] < started[r] && have[AT(r, done[r])] == ALL ->
       done[r] = done[r] + 1;
#ifdef MUTANT_FORGETS_WHEN_DONE
       oldest[r] = done[r]
#endif
     }
#ifndef MUTANT_NEVER_ASKS
  :: atomic { LACKS(r, 0) -> ask(r, 0) }
#if CHUNKS == 2
  :: atomic { LACKS(r, 1) -> ask(r, 1) }
#endif
#endif
  :: atomic {  // the question comes to a rank that may have the chunk
       asked[r] != NOBODY ->
       t = asked_task[r];
       c = asked[r];
       if
       :: c == OWNER(t) ->
          assert(oldest[c] <= t || done[r] > t);                         // kept
          if
          :: oldest[c] <= t && HAS(c, t, about[r]) -> answer(r, true)
          :: else -> asked[r] = NOBODY
          fi
       :: c != OWNER(t) && started[c] > t && done[c] <= t && HAS(c, t, about[r]) -> answer(r, true)
#ifdef MUTANT_ANSWERS_WHEN_DONE
       :: c != OWNER(t) && started[c] > t && done[c] > t -> answer(r, false)
#endif
#ifdef MUTANT_ASKS_LEFT_ONLY
       :: c != OWNER(t) && !(started[c] > t && done[c] <= t && HAS(c, t, about[r])) -> asked[r] = NOBODY
#else
       :: c != OWNER(t) && !(started[c] > t && done[c] <= t && HAS(c, t, about[r])) ->
          if
          :: started[c] > t && oldest[c] <= t -> asked[r] = OWNER(t)     // passes the question on
          :: else -> asked[r] = NOBODY
          fi
#endif
       fi;
       t = 0; c = 0
     }
  :: atomic {  // the question is lost
       asked[r] != NOBODY && losses < LOSSES -> losses++; asked[r] = NOBODY
     }
  :: atomic {  // the answer comes
       answered[r] && started[r] > answer_task[r] && done[r] <= answer_task[r] &&
         !HAS(r, answer_task[r], answer_chunk[r]) ->
       place(r, answer_task[r], answer_chunk[r], answer_task[r], answer_right[r])
     }
  :: atomic {  // the answer is lost
       answered[r] && losses < LOSSES -> losses++; answered[r] = false
     }
  :: atomic { done[r] == TASKS -> break }
  od;
#ifdef MUTANT_NEVER_ENDS
  assert(false)
#endif
}

init {
  atomic {
    for (i : 0 .. HOSTS - 1) {
      asked[i] = NOBODY;
      run Rank(i);
      for (j : 0 .. TASKS - 1) {
        if
        :: OWNER(j) != i ->
           run Way(i, j, 0);
#if CHUNKS == 2
           run Way(i, j, 1)
#endif
        :: else -> run Sender(j)
        fi
      }
    }
  }
}
