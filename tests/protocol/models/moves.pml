// SPDX-License-Identifier: Apache-2.0
//
// A group that moves to another tree, for exhaustive search by spin: hosts with windows of S slots, and the controller.
//
// slots.pml models a group that does not move. In this model a group is simpler: after every host has contributed to
// chunk g, the group may give the result to any host at any time, and may lose it any number of times. Hosts contribute
// in order, so one number describes all contributions of a host. Groups of earlier epochs continue to answer, because
// their packets are still under way.
//
// The controller tells hosts to pause. A host reports its position, which is its lowest chunk without a result. After
// all have reported, hosts resume in the next epoch from the least position, which is chunk 0 of the new group. Hosts
// pause and resume at any time.
//
// A group can also give up its chunks. Every host halts at any time, and reports its mark, which is after all chunks
// that it has contributed to. After all have halted, each host restarts at the greatest mark, at any time. Moves go on
// during halts. Contributions after a restart belong to other calls than contributions before it.
//
// The model asserts at every step:
//   sum     a host's result of chunk k is the sum of all hosts' contributions to k, of calls since the same restart;
//   kept    a host repeats only contributions among its last KEPT ones (otherwise others would wait forever);
//   ahead   no host resumes after its own position (otherwise it would wait forever).
// Each MUTANT_* changes one rule. Spin must then find a violation.

#ifndef HOSTS
#define HOSTS 2
#endif
#ifndef S
#define S 2
#endif
#ifndef CHUNKS
#define CHUNKS 6
#endif
#ifndef MOVES
#define MOVES 2
#endif
#ifndef HALTS
#define HALTS 0
#endif
#ifdef MUTANT_KEEP_ONE_WINDOW
#define KEPT S
#else
#define KEPT (2 * S)
#endif

#define OF(e, h) ((e) * HOSTS + (h))

byte epoch;                      // the epoch of the newest group
bool moving;                     // hosts are being paused
byte in_epoch[HOSTS];            // the epoch of a host's group
bool paused[HOSTS];
byte position[HOSTS];            // as reported
byte built[HOSTS];               // all contributions so far: 0 .. built-1
byte have[HOSTS];                // results that a host has, a bit per chunk
byte done[HOSTS];                // results of the current group, a bit per chunk
byte first[(MOVES + 1) * HOSTS]; // the host's chunk that is chunk 0 of an epoch's group
byte sent[(MOVES + 1) * HOSTS];  // the number of chunks of an epoch's group that a host has contributed to

byte gave[(MOVES + 1) * HOSTS];  // these chunks of an epoch's group, a bit per chunk
byte halts;                      // restarts begun
bool halting;                    // hosts are halting
bool halted[HOSTS];
byte life[HOSTS];                // restarts of a host so far
byte floor[HOSTS];               // earlier chunks are void
byte base;                       // the chunk at which all restart
byte made[HOSTS * CHUNKS];       // the life in which a host contributed to a chunk

hidden byte host, other, k, g, least, all;

#define FROM(a, b) ((a) > (b) -> (a) : (b))

inline choose_host() {
  host = 0;
  do
  :: host < HOSTS - 1 -> host++
  :: break
  od
}

inline find_position() {
  k = 0;
  do
  :: k < CHUNKS && (k < floor[host] || (have[host] & (1 << k))) -> k++
  :: else -> break
  od
}

// Whether every host has contributed to chunk g of the group of epoch e.
inline contributed(e) {
  all = true;
  other = 0;
  do
  :: other < HOSTS && !(gave[OF(e, other)] & (1 << g)) -> all = false; break
  :: other < HOSTS && (gave[OF(e, other)] & (1 << g)) -> other++
  :: else -> break
  od
}

// A host accepts the result of chunk g of epoch e's group as its chunk k.
inline take(e) {
  other = 0;
  do
  :: other < HOSTS ->
     assert(first[OF(e, other)] + g == k);              // sum
     assert(made[other * CHUNKS + k] == life[host]);    // sum
     other++
  :: else -> break
  od;
  done[host] = done[host] | (1 << k);
  have[host] = have[host] | (1 << k)
}

init {
end:
  do
#ifdef MUTANT_NEVER_ENDS
  :: assert(have[0] != (1 << CHUNKS) - 1 || have[HOSTS - 1] != (1 << CHUNKS) - 1 || epoch < MOVES)
#endif
  :: atomic {  // a host contributes
       choose_host();
       k = first[OF(in_epoch[host], host)] + sent[OF(in_epoch[host], host)];
       if
       :: !paused[host] && !halted[host] && k < CHUNKS &&
          (k - FROM(first[OF(in_epoch[host], host)], floor[host]) < S || (done[host] & (1 << (k - S)))) ->
          gave[OF(in_epoch[host], host)] = gave[OF(in_epoch[host], host)] | (1 << sent[OF(in_epoch[host], host)]);
          made[host * CHUNKS + k] = life[host];
          sent[OF(in_epoch[host], host)] = sent[OF(in_epoch[host], host)] + 1;
          if
          :: k == built[host] -> built[host] = k + 1
          :: else
          fi
       :: else
       fi
     }
  :: atomic {  // a result arrives
       choose_host();
       g = 0;
       do
       :: g < CHUNKS - 1 -> g++
       :: break
       od;
       k = first[OF(in_epoch[host], host)] + g;
       contributed(in_epoch[host]);
#ifndef MUTANT_TAKES_VOID
       all = all && k >= floor[host];
#endif
       if
       :: !paused[host] && !halted[host] && all -> take(in_epoch[host])
       :: else
       fi;
#ifdef MUTANT_SAME_GROUP
       if
       :: in_epoch[host] > 0 ->
          contributed(in_epoch[host] - 1);
          if
          :: !paused[host] && all -> take(in_epoch[host] - 1)
          :: else
          fi
       :: else
       fi
#endif
     }
  :: atomic {  // the controller begins a move
       if
       :: epoch < MOVES && !moving -> moving = true
       :: else
       fi
     }
  :: atomic {  // a host pauses
       choose_host();
       if
       :: moving && !paused[host] && in_epoch[host] == epoch ->
          find_position();
          position[host] = k;
          paused[host] = true
       :: else
       fi
     }
  :: atomic {  // all have reported: the controller places the group again
       all = moving;
       least = CHUNKS;
       host = 0;
       do
       :: host < HOSTS ->
          if
          :: !paused[host] -> all = false
          :: else
          fi;
          if
          :: position[host] < least -> least = position[host]
          :: else
          fi;
          host++
       :: else -> break
       od;
#ifdef MUTANT_POSITION_OF_ONE
       least = position[0];
#endif
       if
       :: all ->
          epoch++;
          moving = false;
          host = 0;
          do
          :: host < HOSTS ->
#ifdef MUTANT_OWN_POSITION
             first[OF(epoch, host)] = position[host];
#else
             first[OF(epoch, host)] = least;
#endif
             host++
          :: else -> break
          od
       :: else
       fi
     }
  :: atomic {  // a host resumes
       choose_host();
       if
       :: paused[host] && in_epoch[host] < epoch ->
          in_epoch[host] = epoch;
          assert(first[OF(epoch, host)] <= position[host]);               // ahead
          k = FROM(first[OF(epoch, host)], floor[host]);
#ifdef MUTANT_RESUMES_VOID
          k = first[OF(epoch, host)];
#endif
          assert(built[host] - k <= KEPT);                                // kept
          sent[OF(epoch, host)] = k - first[OF(epoch, host)];
          done[host] = 0;
          position[host] = 0;
          paused[host] = false
       :: else
       fi
     }
#if HALTS > 0
  :: atomic {  // a restart begins
       all = halts < HALTS && !halting;
       host = 0;
       do
       :: host < HOSTS -> all = all && life[host] == halts; host++
       :: else -> break
       od;
       if
       :: all -> halting = true; halts++
       :: else
       fi
     }
  :: atomic {  // a host halts
       choose_host();
       if
       :: halting && !halted[host] && life[host] < halts ->
          halted[host] = true;
          floor[host] = built[host]
       :: else
       fi
     }
  :: atomic {  // all have halted
       all = halting;
       least = 0;
       host = 0;
       do
       :: host < HOSTS -> all = all && halted[host]; least = FROM(least, built[host]); host++
       :: else -> break
       od;
       if
       :: all -> base = least; halting = false
       :: else
       fi
     }
  :: atomic {  // a host restarts
       choose_host();
       if
       :: !halting && halted[host] ->
#ifdef MUTANT_OWN_MARK
          base = built[host];
#endif
          halted[host] = false;
          life[host] = halts;
          built[host] = base;
          floor[host] = base;
          sent[OF(in_epoch[host], host)] = base - first[OF(in_epoch[host], host)]
       :: else
       fi
     }
#endif
  od
}
