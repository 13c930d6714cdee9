// SPDX-License-Identifier: Apache-2.0
//
// The slot algorithm, for exhaustive search by spin: hosts, a root switch and, with LEVELS 2, a leaf switch below it.
//
// The model has one slot with its two copies (S = 1), because slots are independent. At first a switch holds the
// contents that an earlier group has left. Serial numbers have three bits and wrap in the middle of the run.
//
// The network is the set of all packets ever sent. Each packet may arrive at any time, any number of times, or never.
// This covers loss, duplication, reordering and delay without bound. Serial numbers must not alias: 32 bits exclude
// this in practice, and CHUNKS <= 8 excludes it here.
//
// The model asserts at every step:
//   sum      each partial sum or result that leaves a switch contains each contribution exactly once;
//   needed   a switch drops a contribution as STALE only if its sender already holds the result;
//            otherwise the sender would wait forever;
//   absorbed a slot never holds more than the children contributed.
// With OWNERS, host k mod HOSTS owns chunk k. Results contain the sum only on the path to the owner. Elsewhere they
// are bare acknowledgements, and a switch keeps no sum of them. The model omits that the owner adds its own part.
// Each MUTANT_* removes one rule. Spin must then find a violation.

#ifndef LEVELS
#define LEVELS 1
#endif
#ifndef HOSTS
#define HOSTS 2
#endif
#ifndef CHUNKS
#define CHUNKS 8
#endif

#define SERIALS 8  // three bits
#define START 6    // tags run 6, 7, 0, 1

#define ROOT 0
#define LEAF 1

#if LEVELS == 2
#define ALL_AT_ROOT 3                        // child 0: the leaf; child 1: the last host
#define ALL_AT_LEAF ((1 << (HOSTS - 1)) - 1) // all other hosts
#define IS_AT_LEAF(h) (h < HOSTS - 1)
#else
#define ALL_AT_ROOT ((1 << HOSTS) - 1)
#define ALL_AT_LEAF 0
#define IS_AT_LEAF(h) false
#endif

#ifdef MUTANT_ONE_COPY
#define COPY(k) 0
#define TAG(k) ((START + k) % SERIALS)
#else
#define COPY(k) (k % 2)
#define TAG(k) ((START + k / 2) % SERIALS)
#endif

// Host h's contribution to chunk k. Two sums of contributions are equal only if their parts are equal.
#define VALUE(h, k) ((1 << (4 * h)) * (k + 1))

#ifdef OWNERS
#define OWNER(k) (k % HOSTS)
#define OWNS(h) (h == OWNER(k))
#define OWNER_AT_LEAF IS_AT_LEAF(OWNER(k))
#else
#define OWNS(h) false
#define OWNER_AT_LEAF false
#endif

typedef Copy {
  byte tag;
  byte owner;    // 1 + the child on the owner's side, 0: none
  byte seen;
  bool present;  // RESULT PRESENT
  int sum;
}
typedef Switch {
  Copy copy[2];
}

Switch at[LEVELS];
byte held[HOSTS];      // results of a host: 0 .. held-1. It contributes to chunk `held`, possibly several times
byte up[HOSTS];        // CONTRIBUTE packets of a host, a bit per chunk
byte down[HOSTS];      // RESULT packets to a host
byte leaf_up;          // CONTRIBUTE packets of the leaf
byte leaf_down;        // RESULT packets to the leaf

hidden byte host, k, c, serial_difference, i, reflected;
hidden int expected, partial;

inline expect_sum(first, last) {
  expected = 0;
  i = first;
  do
  :: i <= last -> expected = expected + VALUE(i, k); i++
  :: else -> break
  od
}

inline classify(s) {
#ifdef MUTANT_NO_TAG_CHECK
  serial_difference = 0;
#else
  serial_difference = (TAG(k) + SERIALS - at[s].copy[c].tag) % SERIALS;
#ifdef MUTANT_UNSIGNED_SERIALS
  if
  :: TAG(k) > at[s].copy[c].tag -> serial_difference = 1
  :: TAG(k) == at[s].copy[c].tag -> serial_difference = 0
  :: else -> serial_difference = SERIALS - 1
  fi;
#endif
#endif
}

#define IS_SAME (serial_difference == 0)
#define IS_NEWER (serial_difference > 0 && serial_difference < SERIALS / 2)

inline multicast(s) {
#if LEVELS == 2
  if
  :: s == ROOT ->
     leaf_down = leaf_down | (1 << k);
     down[HOSTS - 1] = down[HOSTS - 1] | (1 << k)
  :: else ->
     i = 0;
     do
     :: i < HOSTS - 1 -> down[i] = down[i] | (1 << k); i++
     :: else -> break
     od
  fi
#else
  i = 0;
  do
  :: i < HOSTS -> down[i] = down[i] | (1 << k); i++
  :: else -> break
  od
#endif
}

inline forward_up() {
  expect_sum(0, HOSTS - 2);
  assert(at[LEVELS - 1].copy[c].sum == expected);  // sum
  leaf_up = leaf_up | (1 << k)
}

// All children have contributed for the first time.
inline complete(s) {
  if
  :: s == ROOT ->
     expect_sum(0, HOSTS - 1);
     assert(at[s].copy[c].sum == expected);  // sum
     at[s].copy[c].present = true;
     multicast(s)
  :: else -> forward_up()
  fi
}

// A child that has contributed asks again. Reflect the result, or repeat the packet to the parent, which may be lost.
inline answer_again(s, child) {
  if
  :: s == ROOT || at[s].copy[c].present ->
#if defined(OWNERS) && !defined(MUTANT_SUM_FOR_ALL)
     if
     :: at[s].copy[c].owner == child + 1 ->
        expect_sum(0, HOSTS - 1);
        assert(at[s].copy[c].sum == expected)  // sum
     :: else
     fi;
#else
     expect_sum(0, HOSTS - 1);
     assert(at[s].copy[c].sum == expected);  // sum
#endif
     reflected = true
  :: else -> forward_up()
  fi
}

// A contribution `value` of child `child` to chunk k arrives at switch s. `owns`: the owner is on the child's side.
// `has_result`: the sender holds the result.
inline contribute(s, child, value, all, owns, has_result) {
  c = COPY(k);
  classify(s);
  if
  :: IS_NEWER ->
     at[s].copy[c].tag = TAG(k);
     at[s].copy[c].seen = 1 << child;
     at[s].copy[c].present = false;
     at[s].copy[c].sum = value;
     at[s].copy[c].owner = (owns -> child + 1 : 0);
     if
     :: at[s].copy[c].seen == all -> complete(s)
     :: else
     fi
  :: IS_SAME && !(at[s].copy[c].seen & (1 << child)) ->
     at[s].copy[c].seen = at[s].copy[c].seen | (1 << child);
     at[s].copy[c].sum = at[s].copy[c].sum + value;
     at[s].copy[c].owner = (owns -> child + 1 : at[s].copy[c].owner);
     if
     :: at[s].copy[c].seen == all -> complete(s)
     :: else
     fi
  :: IS_SAME && (at[s].copy[c].seen & (1 << child)) ->
#ifdef MUTANT_NO_SEEN
     at[s].copy[c].sum = at[s].copy[c].sum + value;
#endif
     if
     :: at[s].copy[c].seen != all
     :: else -> answer_again(s, child)
     fi
  :: else -> assert(has_result)  // needed
  fi
}

// The parent's RESULT for chunk k arrives at the leaf.
inline deliver_down() {
  c = COPY(k);
  classify(LEVELS - 1);
  if
#ifdef MUTANT_RESULT_WITHOUT_TAG
  :: !at[LEVELS - 1].copy[c].present ->
#else
  :: IS_SAME && !at[LEVELS - 1].copy[c].present ->
#endif
#ifdef OWNERS
     if
     :: IS_AT_LEAF(OWNER(k)) ->
        expect_sum(0, HOSTS - 1);
        at[LEVELS - 1].copy[c].sum = expected
     :: else -> at[LEVELS - 1].copy[c].owner = 0
     fi;
#else
     expect_sum(0, HOSTS - 1);
     at[LEVELS - 1].copy[c].sum = expected;
#endif
#ifndef MUTANT_NO_RESULT_PRESENT
     at[LEVELS - 1].copy[c].present = true;
#endif
     multicast(LEAF)
  :: else
  fi
}

inline choose_chunk() {
  k = 0;
  do
  :: k < CHUNKS - 1 -> k++
  :: break
  od
}

inline choose_host() {
  host = 0;
  do
  :: host < HOSTS - 1 -> host++
  :: break
  od
}

init {
  atomic {
    i = 0;
    do
    :: i < 2 * LEVELS ->
       at[i / 2].copy[i % 2].tag = (START + SERIALS - 1) % SERIALS;
       at[i / 2].copy[i % 2].seen = (i / 2 == ROOT -> ALL_AT_ROOT : ALL_AT_LEAF);
       at[i / 2].copy[i % 2].present = true;
       at[i / 2].copy[i % 2].sum = 7;
       i++
    :: else -> break
    od
  }
end:
  do
#ifdef MUTANT_NEVER_ENDS
  :: assert(held[0] < CHUNKS || held[HOSTS - 1] < CHUNKS)  // claims that no run ends; spin must find a run that ends
#endif
  :: atomic {  // a host sends
       choose_host();
       k = held[host];
       if
       :: k < CHUNKS -> up[host] = up[host] | (1 << k)
       :: else
       fi
     }
  :: atomic {  // a contribution arrives
       choose_host();
       choose_chunk();
       reflected = false;
       if
       :: !(up[host] & (1 << k))
#if LEVELS == 2
       :: (up[host] & (1 << k)) && IS_AT_LEAF(host) ->
          contribute(LEAF, host, VALUE(host, k), ALL_AT_LEAF, OWNS(host), (held[host] > k))
       :: (up[host] & (1 << k)) && !IS_AT_LEAF(host) ->
          contribute(ROOT, 1, VALUE(host, k), ALL_AT_ROOT, OWNS(host), (held[host] > k))
#else
       :: (up[host] & (1 << k)) -> contribute(ROOT, host, VALUE(host, k), ALL_AT_ROOT, OWNS(host), (held[host] > k))
#endif
       fi;
       if
       :: reflected -> down[host] = down[host] | (1 << k)
       :: else
       fi
     }
  :: atomic {  // a result arrives
       choose_host();
       k = held[host];
       if
       :: k < CHUNKS && (down[host] & (1 << k)) -> held[host] = k + 1
       :: else
       fi
     }
#if LEVELS == 2
  :: atomic {  // the leaf's contribution arrives at the root
       choose_chunk();
       reflected = false;
       if
       :: (leaf_up & (1 << k)) ->
          expect_sum(0, HOSTS - 2);
          partial = expected;
          // The leaf needs the result as long as one of its hosts needs it.
          contribute(ROOT, 0, partial, ALL_AT_ROOT, OWNER_AT_LEAF, (held[0] > k && held[HOSTS - 2] > k))
       :: else
       fi;
       if
       :: reflected -> leaf_down = leaf_down | (1 << k)
       :: else
       fi
     }
  :: atomic {  // a result arrives at the leaf
       choose_chunk();
       if
       :: (leaf_down & (1 << k)) -> deliver_down()
       :: else
       fi
     }
#endif
  od
}
