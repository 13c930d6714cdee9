// SPDX-License-Identifier: Apache-2.0
//
// Sums on a ring of reliable connections, for exhaustive search by spin. A switch sums packet `index` of all
// connections. Members send message k + N after they have received the result of message k. Each message is one packet,
// and N = 1: a property of messages holds for each of their packets.
//
// The network is the set of all packets ever sent. Each packet may arrive at any time, any number of times, or never.
// This covers loss, duplication, reordering and delay without bound. Indices must not alias. They have four bits here
// and wrap in the middle of the run. MESSAGES <= 8 excludes aliasing here, and the 24 bits of PSNs do so in practice.
// A sender repeats unacknowledged packets in any order. This covers going back N after a NAK or a time-out, and lost
// acknowledgements. So the model needs no acknowledgements.
//
// With LEVELS=2 the last member is at one leaf, and the others are at another leaf. A root adds the leaves' sums. Each
// leaf sends the total sum on the connections to its members. If a connection comes from the other leaf, the root's
// packet contains its header. A member's own leaf answers the member's repetitions. Packets between switches may be
// lost, duplicated and delayed, too. FORGETS times, a switch forgets all its slots, as after a restart. Then sums may
// be missing for ever, but no sum is wrong.
//
// The model asserts at every step:
//   sum       a sum that leaves the switch contains each member's contribution exactly once;
//   own       the sum leaves with the header that the connection's sender gave to the message;
//   had       a packet is older than its slot only if its receiver has had the sum (and acknowledges it again);
//   newest    the newest packet of a sender is never older than its slot. So a sender that goes back reaches a packet
//             that its receiver answers;
//   part      a leaf's packet to the root contains each contribution of the leaf's members exactly once;
//   above     a leaf's packet is older than the root's slot only if nobody at the leaf waits for the sum.
// Each MUTANT_* removes one rule. Spin must then find a violation.

#ifndef MEMBERS
#define MEMBERS 2
#endif
#ifndef MESSAGES
#define MESSAGES 8
#endif
#ifndef LEVELS
#define LEVELS 1
#endif

#define INDICES 16  // four bits
#define FIRST 12     // so that they wrap
#define INDEX(k) ((FIRST + k) % INDICES)
#ifdef MUTANT_ONE_WINDOW_OF_SLOTS
#define SLOTS 1
#else
#define SLOTS 2    // two windows
#endif
#ifdef MUTANT_WIDE_WINDOW
#define WINDOW 2
#else
#define WINDOW 1
#endif

// Switches: the root, and with two levels two leaves. To the root, leaf n is contributor n - 1.
#define ROOT 0
#if LEVELS == 1
#define SWITCHES 1
#define OF(m) ROOT
#define CONTRIBUTORS(s) MEMBERS
#else
#define SWITCHES 3
#define OF(m) (m < MEMBERS - 1 -> 1 : 2)
#define CONTRIBUTORS(s) (s == ROOT -> 2 : (s == 1 -> MEMBERS - 1 : 1))
#endif
#define SLOT(s, k) (s * SLOTS + INDEX(k) % SLOTS)
#define LAST(s) (s == 1 -> MEMBERS - 2 : MEMBERS - 1)  // the last member of a leaf
#define PLACE(m) (OF(m) == 2 -> 0 : m)  // a member's number among its switch's contributors

#define NEXT(m) ((m + 1) % MEMBERS)
#define ALL(s) ((1 << CONTRIBUTORS(s)) - 1)

// Member m's contribution to message k. Two sums of contributions are equal only if their parts are equal.
#define VALUE(m, k) ((1 << (4 * m)) * (k + 1))

typedef Slot {
  byte index;
  byte seen;
  bool other_group;   // it holds an earlier group's contents, or nothing
  bool result;        // it holds the total sum, from the root
  int sum;
  byte own[MEMBERS];  // 1 + the message of the member's header
}

Slot slot[SWITCHES * SLOTS];
byte sent[MEMBERS];    // messages that a member has sent: 0 .. sent-1
byte had[MEMBERS];     // results that a member has received
byte up[MEMBERS];      // a member's packets to the switch, a bit per message
byte down[MEMBERS];    // sums to a member
byte part[SWITCHES];   // a leaf's packets to the root
byte whole[SWITCHES];  // the root's packets to a leaf

hidden byte s, m, k, c, ahead, i;
hidden int expected, value;

// The sum of message k over all members, or over the members of one leaf.
inline expect_sum(at) {
  expected = 0;
  i = 0;
  do
  :: i < MEMBERS ->
     if
     :: at == ROOT || OF(i) == at -> expected = expected + VALUE(i, k)
     :: else
     fi;
     i++
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
#define COMPLETE(s) (slot[c].seen == ALL(s))

// The switch sends the slot's sum on a member's connection.
inline goes_on(to) {
  assert(slot[c].sum == expected);   // sum
  assert(slot[c].own[to] == k + 1);  // own
  down[NEXT(to)] = down[NEXT(to)] | (1 << k)
}

// The switch sends the sum on all connections to members at switch s.
inline deliver() {
  expect_sum(ROOT);
  ahead = 0;  // from here on a counter of members
  do
  :: ahead < MEMBERS ->
     if
     :: OF(NEXT(ahead)) == s && OF(ahead) == s -> goes_on(ahead)
     :: OF(NEXT(ahead)) == s && OF(ahead) != s -> down[NEXT(ahead)] = down[NEXT(ahead)] | (1 << k)
     :: else
     fi;
     ahead++
  :: else -> break
  od
}

inline overwrite(seen_now) {
  slot[c].index = INDEX(k);
  slot[c].other_group = false;
  slot[c].result = false;
  slot[c].seen = seen_now;
  slot[c].sum = 0
}

// The packet of message k of contributor n enters slot c of switch s. A packet with the slot's index is new or repeated.
inline contribute(n) {
  if
  :: IS_NEW -> overwrite(0)
  :: else
  fi;
  if
  :: !(slot[c].seen & (1 << n)) ->
     slot[c].seen = slot[c].seen | (1 << n);
     if
#ifndef MUTANT_ADDED_TO_THE_RESULT
     :: slot[c].result
#endif
     :: else -> slot[c].sum = slot[c].sum + value
     fi
  :: else ->
#ifdef MUTANT_NO_SEEN
     slot[c].sum = slot[c].sum + value;
#endif
     again = true
  fi
}

// Member m's packet of message k arrives at its switch.
inline arrives() {
  s = OF(m);
  c = SLOT(s, k);
  value = VALUE(m, k);
  again = false;
  classify();
  if
  :: IS_NEW || IS_SAME ->
     contribute(PLACE(m));
#ifdef MUTANT_HEADER_OF_THE_FIRST
     if
     :: IS_NEW -> slot[c].own[m] = k + 1
     :: else
     fi;
#else
     slot[c].own[m] = k + 1;
#endif
     if
     :: slot[c].result -> expect_sum(ROOT); goes_on(m)
     :: !slot[c].result && COMPLETE(s) && s == ROOT && !again -> deliver()
     :: !slot[c].result && COMPLETE(s) && s == ROOT && again -> expect_sum(ROOT); goes_on(m)
     :: !slot[c].result && COMPLETE(s) && s != ROOT -> 
        expect_sum(s);
        assert(slot[c].sum == expected);  // part
        assert(slot[c].own[LAST(s)] == k + 1);  // own, for the connection to the other leaf
        part[s] = part[s] | (1 << k)
     :: else
     fi
  :: else ->
     assert(had[NEXT(m)] > k);  // had
     assert(k + 1 < sent[m])    // newest
  fi
}

#if LEVELS == 2
// Leaf m's packet of message k arrives at the root.
inline arrives_at_root() {
  s = ROOT;
  c = SLOT(s, k);
  expect_sum(m);
  value = expected;
  again = false;
  classify();
  if
  :: IS_NEW || IS_SAME ->
     contribute(m - 1);
     if
     :: COMPLETE(s) ->
        expect_sum(ROOT);
        assert(slot[c].sum == expected);  // sum
        whole[m] = whole[m] | (1 << k);
        if
        :: again
        :: else -> whole[3 - m] = whole[3 - m] | (1 << k)
        fi
     :: else
     fi
  :: else ->
     i = 0;
     do
     :: i < MEMBERS -> assert(OF(i) != m || had[NEXT(i)] > k); i++  // above
     :: else -> break
     od
  fi
}

// The root's packet of message k arrives at leaf m.
inline arrives_at_leaf() {
  s = m;
  c = SLOT(s, k);
  expect_sum(ROOT);
  classify();
  if
  :: (IS_NEW || IS_SAME) && (IS_NEW || !slot[c].result) ->
     if
     :: IS_NEW -> overwrite(0)
     :: else
     fi;
     slot[c].result = true;
#ifdef MUTANT_RESULT_IS_ADDED
     slot[c].sum = slot[c].sum + expected;
#else
     slot[c].sum = expected;
#endif
     if
#ifndef MUTANT_EARLY_RESULT_GOES_ON
     :: !COMPLETE(s)
#endif
     :: else -> deliver()
     fi
  :: else
  fi
}
#endif

inline forget() {
  i = 0;
  do
  :: i < SLOTS ->
     c = s * SLOTS + i;
     slot[c].index = (FIRST + i) % INDICES;  // the same index as in this group
     slot[c].seen = ALL(s);
     slot[c].other_group = true;
     slot[c].result = false;
     slot[c].sum = 7;
     m = 0;
     do
     :: m < MEMBERS -> slot[c].own[m] = 0; m++
     :: else -> break
     od;
     i++
  :: else -> break
  od
}

inline choose(one, first, last) {
  one = first;
  do
  :: one < last -> one++
  :: break
  od
}

init {
  bool again;
  byte forgotten;
  atomic {
    s = 0;
    do
    :: s < SWITCHES -> forget(); s++
    :: else -> break
    od
  }
end:
  do
#ifdef MUTANT_NEVER_ENDS
  :: assert(had[0] < MESSAGES || had[MEMBERS - 1] < MESSAGES)  // claims that no run ends; spin must find a run that ends
#endif
  :: atomic {  // a member sends its next message
       choose(m, 0, MEMBERS - 1);
       if
       :: sent[m] < MESSAGES && sent[m] < had[m] + WINDOW ->
          up[m] = up[m] | (1 << sent[m]);
          sent[m] = sent[m] + 1
       :: else
       fi
     }
  :: atomic {  // a packet arrives at the switch, for the first time or again
       choose(m, 0, MEMBERS - 1);
       choose(k, 0, MESSAGES - 1);
       if
       :: (up[m] & (1 << k)) -> arrives()
       :: else
       fi
     }
  :: atomic {  // the sum that a receiver expects arrives; the receiver drops other sums
       choose(m, 0, MEMBERS - 1);
       k = had[m];
       if
       :: k < MESSAGES && (down[m] & (1 << k)) -> had[m] = k + 1
       :: else
       fi
     }
#if LEVELS == 2
  :: atomic {  // a packet arrives between switches
       choose(m, 1, 2);
       choose(k, 0, MESSAGES - 1);
       if
       :: (part[m] & (1 << k)) -> arrives_at_root()
       :: else
       fi
     }
  :: atomic {
       choose(m, 1, 2);
       choose(k, 0, MESSAGES - 1);
       if
       :: (whole[m] & (1 << k)) -> arrives_at_leaf()
       :: else
       fi
     }
#endif
#if FORGETS
  :: atomic {
       if
       :: forgotten < FORGETS -> choose(s, 0, SWITCHES - 1); forget(); forgotten++
       :: else
       fi
     }
#endif
  od
}
