// SPDX-License-Identifier: Apache-2.0
//
// Sums on a ring of reliable connections, for exhaustive search by spin: a switch that sums packet `index` of all
// connections, and members who send message k + N when the result of message k has come. Messages are of one packet
// (and N = 1): what the rule promises of messages, it promises of each of their packets.
//
// The network is the set of all packets ever sent. Any of them may arrive at any time and any number of times, or never:
// that is loss, duplication, reordering and delay without bound, up to the aliasing of indices, which have four bits here
// and wrap in the middle of the run; MESSAGES <= 8 excludes it, as the 24 bits of PSNs do in practice.
// A sender repeats what is not acknowledged, in any order: that includes going back N, after a NAK or a time-out, and
// acknowledgements that are lost, of which the model therefore needs none.
//
// What is asserted, at every step:
//   sum       what leaves the switch is the sum of each member's contribution exactly once;
//   own       it leaves under the header that its connection's own sender gave that message;
//   had       a packet is older than its slot only if its receiver has had the sum (who then acknowledges it again);
//   newest    the newest packet of a sender is never older than its slot: so, going back, it gets through to one
//             that its receiver answers.
// Each MUTANT_* takes one rule away; spin must then find a violation.

#ifndef MEMBERS
#define MEMBERS 2
#endif
#ifndef MESSAGES
#define MESSAGES 8
#endif

#define INDICES 16  // four bits
#define FIRST 12     // so that they wrap
#define INDEX(k) ((FIRST + k) % INDICES)
#ifdef MUTANT_ONE_WINDOW_OF_SLOTS
#define SLOTS 1
#else
#define SLOTS 2    // two windows
#endif
#define SLOT(k) (INDEX(k) % SLOTS)
#ifdef MUTANT_WIDE_WINDOW
#define WINDOW 2
#else
#define WINDOW 1
#endif

#define NEXT(m) ((m + 1) % MEMBERS)
#define ALL ((1 << MEMBERS) - 1)

// What member m contributes to message k: no two sums of such are equal unless their parts are.
#define VALUE(m, k) ((1 << (4 * m)) * (k + 1))

typedef Slot {
  byte index;
  byte seen;
  bool other_group;   // it holds what an earlier group has left
  int sum;
  byte own[MEMBERS];  // whose message the member's header is of
}

Slot slot[SLOTS];
byte sent[MEMBERS];    // messages that a member has sent: 0 .. sent-1
byte had[MEMBERS];     // results that it has received
byte up[MEMBERS];      // its packets on the way to the switch, a bit per message
byte down[MEMBERS];    // sums on the way to it

hidden byte m, k, c, ahead, i;
hidden int expected;

inline expect_sum() {
  expected = 0;
  i = 0;
  do
  :: i < MEMBERS -> expected = expected + VALUE(i, k); i++
  :: else -> break
  od
}

inline classify() {
  ahead = (INDEX(k) + INDICES - slot[c].index) % INDICES;
#ifdef MUTANT_UNSIGNED_INDICES
  if
  :: INDEX(k) > slot[c].index -> ahead = 1
  :: INDEX(k) == slot[c].index -> ahead = 0
  :: else -> ahead = INDICES - 1
  fi;
#endif
#ifdef MUTANT_NO_INDEX_CHECK
  ahead = 0;
#endif
#ifndef MUTANT_NO_EPOCH
  if
  :: slot[c].other_group -> ahead = 1
  :: else
  fi
#endif
}

#define IS_SAME (ahead == 0)
#define IS_NEW (ahead > 0 && ahead < INDICES / 2)

inline goes_on(to) {
  assert(slot[c].sum == expected);   // sum
  assert(slot[c].own[to] == k + 1);  // own
  down[NEXT(to)] = down[NEXT(to)] | (1 << k)
}

inline complete() {
  expect_sum();
  ahead = 0;  // from here on, of members
  do
  :: ahead < MEMBERS -> goes_on(ahead); ahead++
  :: else -> break
  od
}

// Member m's packet of message k arrives at the switch.
inline arrives() {
  c = SLOT(k);
  classify();
  if
  :: IS_NEW ->
     slot[c].index = INDEX(k);
     slot[c].other_group = false;
     slot[c].seen = 1 << m;
     slot[c].sum = VALUE(m, k);
     slot[c].own[m] = k + 1;
     if
     :: slot[c].seen == ALL -> complete()
     :: else
     fi
  :: IS_SAME && !(slot[c].seen & (1 << m)) ->
     slot[c].seen = slot[c].seen | (1 << m);
     slot[c].sum = slot[c].sum + VALUE(m, k);
#ifndef MUTANT_HEADER_OF_THE_FIRST
     slot[c].own[m] = k + 1;
#endif
     if
     :: slot[c].seen == ALL -> complete()
     :: else
     fi
  :: IS_SAME && (slot[c].seen & (1 << m)) ->
#ifdef MUTANT_NO_SEEN
     slot[c].sum = slot[c].sum + VALUE(m, k);
#endif
     if
     :: slot[c].seen == ALL -> expect_sum(); goes_on(m)
     :: else
     fi
  :: else ->
     assert(had[NEXT(m)] > k);  // had
     assert(k + 1 < sent[m])    // newest
  fi
}

inline choose_member() {
  m = 0;
  do
  :: m < MEMBERS - 1 -> m++
  :: break
  od
}

inline choose_message() {
  k = 0;
  do
  :: k < MESSAGES - 1 -> k++
  :: break
  od
}

init {
  atomic {
    i = 0;
    do
    :: i < SLOTS ->
       slot[i].index = (FIRST + i) % INDICES;  // as if it were this group's
       slot[i].seen = ALL;
       slot[i].other_group = true;
       slot[i].sum = 7;
       i++
    :: else -> break
    od
  }
end:
  do
#ifdef MUTANT_NEVER_ENDS
  :: assert(had[0] < MESSAGES || had[MEMBERS - 1] < MESSAGES)  // claims that no run ends; spin must show one that does
#endif
  :: atomic {  // a member sends its next message
       choose_member();
       if
       :: sent[m] < MESSAGES && sent[m] < had[m] + WINDOW ->
          up[m] = up[m] | (1 << sent[m]);
          sent[m] = sent[m] + 1
       :: else
       fi
     }
  :: atomic {  // a packet arrives at the switch, for the first time or again
       choose_member();
       choose_message();
       if
       :: (up[m] & (1 << k)) -> arrives()
       :: else
       fi
     }
  :: atomic {  // the sum that a receiver expects arrives; others it drops
       choose_member();
       k = had[m];
       if
       :: k < MESSAGES && (down[m] & (1 << k)) -> had[m] = k + 1
       :: else
       fi
     }
  od
}
