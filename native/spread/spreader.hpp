// SPDX-License-Identifier: Apache-2.0
// A rank's side of multicast broadcast and allgather, without I/O: slices and datagrams in, datagrams and
// events out. docs/design/multicast.md describes the protocol.
//
// Whoever drives it has the ranks agree, before each task, that all have begun it (READY: one chunk of the
// slot machine), and on two numbers: the least payload of a packet, and `unfinished`. Then, on every rank and
// in the same order, `start`. It hands over what comes with kind SPREAD or FETCH and this tree's group. After
// every call of `start`, `receive` (better: of several), `expire` and `resume` it takes packets by `transmit`
// until there is none, and events by `poll`; it calls `expire` at `deadline`. A packet goes to the group's
// virtual address, or by unicast to a rank's socket of this rail.
//
// It does not find out that a path is dead or a rank is: `stats().received` and `sent` tell of progress. And
// a rank must not leave while peers may fetch from it: one more READY in which none is unfinished tells it
// so.
//
// Shards are sent once, chunk by chunk, to all. Of an allgather a few ranks send at once, each followed by
// the next of its chain when that has seen the end. A receiver asks for gaps when later chunks have come, for
// what is missing at the end after a silence: first its left neighbour, who answers if it has all that is
// asked for, else passes the question on to the owner.
//
// What a rank sends carries a code that needs the job's secret: SPREAD over the task, the source, the chunk
// and its bytes, so that nothing else is ever placed; FETCH over all that it says, its sender, its receiver
// and a number, so that each is answered once.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <vector>

#include "core/bytes.hpp"
#include "core/replay_window.hpp"
#include "core/round_trip.hpp"
#include "core/secret.hpp"
#include "core/slice.hpp"
#include "core/time.hpp"
#include "ina/packet.hpp"
#include "spread/pacer.hpp"
#include "spread/task.hpp"

namespace railweave::spread {

inline constexpr std::size_t kQuestionBytes = 4;  // origin and number of chunks, 16 bits each
/// Behind them: sender, 16 bits, number, 64, code.
inline constexpr std::size_t kFetchProofBytes = 2 + 8 + kCodeBytes;

/// Of one tree; all its ranks have the same.
struct Keys {
  Key spread;
  Key fetch;

  /// `tree`: its number in the job.
  static Keys of(const Secret& secret, std::uint64_t tree);
};

struct SpreaderOptions {
  std::uint16_t group;
  std::uint8_t child;
  int rank;
  int world_size;
  std::uint64_t rate_bps = 0;  // of the link, or of this tree's part of it; 0: unknown
  int roots = 65535;           // ranks that send at once in an allgather, at most
  std::optional<Keys> keys{};  // nothing: packets have no codes

  /// Throws std::invalid_argument for what is outside the protocol's limits.
  const SpreaderOptions& checked() const;
};

/// A datagram, and where it goes: to the group's tree, or to a rank.
struct Packet {
  static constexpr int kTree = -1;
  Bytes bytes{};
  int to = kTree;
};

/// The slice's output is complete; its memory is the caller's again. In the order in which tasks were
/// started.
struct Done {
  std::uint64_t slice_id;
};

/// Why a datagram was refused.
enum class Refusal : std::uint8_t {
  kShort,    // less than a header
  kVersion,  // of another version
  kGroup,    // another group's
  kKind,     // neither SPREAD nor FETCH
  kSource,   // of a rank that sends nothing in the task, or of this rank itself
  kChunk,    // outside the shard
  kLength,   // not what the chunk or a FETCH has
  kOrigin,   // a FETCH for nobody who could have sent it
  kCode,     // without a valid code: made up, or spoilt on the way
  kReplay,   // a FETCH that has come before
};
inline constexpr std::size_t kRefusals = 10;

/// Counts since the start. Bytes are payload.
struct SpreaderStats {
  std::uint64_t tasks = 0;  // started
  std::uint64_t sent = 0;   // chunks of own shards, to all
  std::uint64_t sent_bytes = 0;
  std::uint64_t received = 0;  // chunks taken, those that were asked for included
  std::uint64_t received_bytes = 0;
  std::uint64_t fetched = 0;  // chunks taken that a peer sent as an answer
  std::uint64_t fetched_bytes = 0;
  std::uint64_t duplicates = 0;  // chunks that were here already
  std::uint64_t stale = 0;       // packets of an unknown task, or of the group before a move
  std::uint64_t fetches_sent = 0;
  std::uint64_t fetches_taken = 0;    // to be answered
  std::uint64_t fetches_passed = 0;   // on to the owner
  std::uint64_t fetches_dropped = 0;  // because too many wait, or nothing of it has been sent yet
  std::uint64_t answered = 0;         // chunks
  std::uint64_t answered_bytes = 0;
  std::uint64_t silences = 0;  // after which something was asked for again
  std::array<std::uint64_t, kRefusals> refused{};

  std::uint64_t refused_in_all() const;
};

/// `now` never decreases from call to call.
class Spreader {
 public:
  /// Packets that the caller may hold: the bytes of one stay while fewer than so many later ones are taken,
  /// and until `halt` or `pause`. They leave in the order in which they were taken, to whomever.
  static constexpr std::size_t kHeldPackets = 256;

  /// Throws std::invalid_argument for options outside the protocol's limits.
  explicit Spreader(const SpreaderOptions& options);
  Spreader(const Spreader&) = delete;
  Spreader& operator=(const Spreader&) = delete;

  /// All ranks have begun this task. `task` is a number that was never used before in the group, and greater
  /// than those before: that of READY's chunk; its low 32 bits go into packets. `chunk_bytes`: payload of a
  /// packet, the same on all ranks. `unfinished`: how many of the tasks right before this one some rank had
  /// not done when it entered READY, the most of all ranks; what is older is forgotten. The slice's memory
  /// stays valid until its Done, or `halt`. Throws std::invalid_argument for what this group cannot carry,
  /// and takes no notice of it.
  void start(std::uint64_t task, const Slice& slice, std::size_t chunk_bytes, std::size_t unfinished,
             Time now);
  /// `unfinished`, of a task that was started when that was not known.
  void forget(std::uint64_t task, std::size_t unfinished);
  /// Takes a SPREAD or FETCH from the network, whoever sent it. `near`: before the first task, a number that
  /// the tree's tasks are near now.
  void receive(Bytes datagram, Time now, std::uint64_t near = 0);
  /// The next packet to send now; its bytes are empty if there is none. Packets that follow each other in
  /// memory and have one destination may leave as one super-packet.
  Packet transmit(Time now);
  /// Reductions use the same links now, and their chunks' round trip is so long; 0: none do. They count as
  /// one more rank that sends to all, and packets may wait as long behind theirs before they count as
  /// missing.
  void set_reducing(Duration round_trip) { reducing_ = round_trip; }
  /// When `expire` wants to be called; kNever if not.
  Time deadline() const;
  void expire(Time now);
  std::optional<Done> poll();

  /// Drops all tasks, without events; the next one may be started at once.
  void halt();
  /// Sends nothing until `resume`. What was taken by `transmit` and has not left is to be thrown away.
  void pause();
  /// Goes on in another group, or the same.
  void resume(std::uint16_t group, std::uint8_t child, Time now);

  std::uint16_t group() const { return options_.group; }
  bool idle() const { return front_ == tasks_.size(); }
  /// Tasks that are kept for peers, or not done.
  std::size_t tasks() const { return tasks_.size(); }
  const SpreaderStats& stats() const { return stats_; }
  double rate_bps() const { return pacer_.rate_bps(); }

 private:
  /// A FETCH, to be sent.
  struct Question {
    std::uint64_t task;
    std::uint16_t source;
    std::uint16_t origin;
    std::uint16_t to;
    Range range;
  };
  /// A FETCH that came, or what is left of it. What waits is not taken again: whoever hears nothing repeats
  /// its question.
  struct Answer {
    std::uint64_t task;
    std::uint32_t shard;
    std::uint16_t origin;
    Range rest;
  };
  /// A SPREAD of a task that others have begun.
  struct Early {
    ina::Header header;
    std::vector<std::byte> payload;
  };

  std::uint64_t number_of(std::uint32_t mark) const;
  Task* find(std::uint64_t task);
  void drop(std::size_t before, std::size_t unfinished);
  void refuse(Refusal why) { ++stats_.refused[static_cast<std::size_t>(why)]; }
  std::optional<Bytes> proven(const ina::Header& header, Bytes body);
  void receive_spread(const ina::Header& header, Bytes payload, Time now);
  Mac code_of_fetch(const Question& question, std::uint16_t sender, std::uint64_t number) const;
  std::optional<Question> question(const ina::Header& header, Bytes body);
  void receive_fetch(const ina::Header& header, Bytes body, Time now);
  void keep_early(const ina::Header& header, Bytes payload);
  void take_early(Time now);
  void take_answer_time(const ina::Header& header, Time now);
  void ask_gaps(Task& task, std::uint32_t shard, std::uint32_t limit);
  void ask_again(Time now);
  void ask(const Task& task, std::uint32_t shard, Range range, std::uint16_t to);
  Task* sending();
  Range unanswered(const Answer& asked) const;
  Answer* answering();
  Packet send_question(Time now);
  Packet send_answer(Answer& answer, Time now);
  Packet send_own(Task& task, Time now);
  std::byte* scratch(std::size_t bytes);
  std::size_t code_bytes() const { return options_.keys ? kCodeBytes : 0; }
  void settle(Time now);
  void reserve(std::size_t chunk_bytes);
  void progress(const Task& task, Time now);
  void watch(Time now);
  Duration patience() const;

  SpreaderOptions options_;
  std::uint16_t left_;                       // neighbour
  std::optional<std::uint16_t> left_group_;  // before a move
  SpreaderStats stats_;
  Pacer pacer_;
  bool paused_ = false;
  Duration reducing_ = 0;
  std::optional<std::uint64_t> last_task_;
  std::uint64_t near_ = 0;              // before it is known
  std::vector<std::uint64_t> fetches_;  // by rank: the number of the last one sent there
  std::vector<ReplayWindow> heard_;     // by rank: of FETCHes
  std::deque<Task> tasks_;
  std::size_t front_ = 0;    // the first that is not done
  std::size_t sending_ = 0;  // the first that is not over
  static constexpr std::uint32_t kLeastReorder = 3;
  std::uint32_t reorder_ = kLeastReorder;  // later chunks of a shard that make a gap
  std::deque<Early> early_;
  std::deque<Question> questions_;
  std::deque<Answer> answers_;
  std::uint32_t in_run_ = 0;  // chunks sent of the first answer
  bool answers_next_ = true;  // own shard and answers take turns
  std::deque<Done> done_;
  std::vector<std::unique_ptr<std::byte[]>> scratch_;  // the last is in use
  std::size_t scratch_size_ = 0;
  std::size_t scratch_used_ = 0;
  Time wake_at_ = kNever;   // for the pacer
  Time quiet_at_ = kNever;  // unless a chunk of the first task that is not done comes
  int silences_ = 0;        // since one did
  bool was_late_ = false;   // since then, to see that
  static constexpr Duration kLeastCalm = 5 * kMillisecond;
  Duration calm_ = kLeastCalm;  // the shortest silence after which to ask
  bool hasty_ = false;          // an answer brought what was here already
  static constexpr std::uint32_t kLeastReach = 4;
  std::uint32_t reach_ = kLeastReach;  // chunks beyond the last that came, for which the next silence asks
  RoundTrip answer_time_;
  Time asked_at_ = kNever;  // when the question was sent that is being timed
  Question timed_{};
};

}  // namespace railweave::spread
