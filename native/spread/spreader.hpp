// SPDX-License-Identifier: Apache-2.0
// A rank's side of multicast broadcast and allgather, without I/O: slices and datagrams in, datagrams and
// events out. docs/design/multicast.md describes the protocol.
//
// Before each task, the caller makes the ranks agree that all have begun it (READY: one chunk of the slot
// machine). READY also agrees on two numbers, the least payload of a packet and `unfinished`. Then every rank
// calls `start`, in the same order. The caller hands over packets of kind SPREAD or FETCH of this tree's
// group. After each `start`, `receive` (better: several), `expire` and `resume` it takes packets by
// `transmit` until it gets an empty one, and events by `poll`. It calls `expire` at `deadline`. A packet goes
// to the group's virtual address, or by unicast to a rank's socket of this rail.
//
// The machine does not notice a dead path or rank. `stats().received` and `sent` show progress. A rank must
// not leave while peers may fetch from it. One more READY without unfinished tasks tells the rank that it may
// leave.
//
// Each shard is sent once, chunk by chunk, to all ranks. In an allgather a few ranks send at once. The next
// rank of a chain begins when it has seen the end of the rank before. A receiver asks for gaps when later
// chunks have come, and for missing chunks at the end after a silence. It first asks its left neighbour. The
// neighbour answers if it has all these chunks. Otherwise it passes the question on to the owner.
//
// Packets carry a code that needs the job's secret. A SPREAD's code covers the task, the source, the chunk
// and its bytes, so that nothing else is ever placed. A FETCH's code covers its content, sender, receiver and
// a number, so that each FETCH is answered once.
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
/// Proof behind them: sender, 16 bits; number, 64 bits; code.
inline constexpr std::size_t kFetchProofBytes = 2 + 8 + kCodeBytes;

/// The keys of one tree, the same on all its ranks.
struct Keys {
  Key spread;
  Key fetch;

  /// `tree`: the number of the tree in the job.
  static Keys of(const Secret& secret, std::uint64_t tree);
};

struct SpreaderOptions {
  std::uint16_t group;
  std::uint8_t child;
  int rank;
  int world_size;
  std::uint64_t rate_bps = 0;  // of the link, or this tree's part of the link; 0: unknown
  int roots = 65535;           // the most ranks that send at once in an allgather
  std::optional<Keys> keys{};  // nothing: packets have no codes

  /// Throws std::invalid_argument for values outside the protocol's limits.
  const SpreaderOptions& checked() const;
};

/// A datagram and its destination: the group's tree, or a rank.
struct Packet {
  static constexpr int kTree = -1;
  Bytes bytes{};
  int to = kTree;
};

/// The slice's output is complete, and its memory is the caller's again. Done comes in the order of the
/// starts.
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
  kOrigin,   // a FETCH whose origin cannot have asked
  kCode,     // without a valid code: forged or damaged
  kReplay,   // a FETCH that has come before
};
inline constexpr std::size_t kRefusals = 10;

/// Counts since the start. Bytes are payload.
struct SpreaderStats {
  std::uint64_t tasks = 0;  // started
  std::uint64_t sent = 0;   // chunks of own shards, to all
  std::uint64_t sent_bytes = 0;
  std::uint64_t received = 0;  // chunks taken, also from answers
  std::uint64_t received_bytes = 0;
  std::uint64_t fetched = 0;  // chunks taken that a peer sent as an answer
  std::uint64_t fetched_bytes = 0;
  std::uint64_t duplicates = 0;  // chunks that were here already
  std::uint64_t stale = 0;       // packets of an unknown task, or of the group before a move
  std::uint64_t fetches_sent = 0;
  std::uint64_t fetches_taken = 0;    // to be answered
  std::uint64_t fetches_passed = 0;   // on to the owner
  std::uint64_t fetches_dropped = 0;  // too many wait, or its chunks already wait or are not sent yet
  std::uint64_t answered = 0;         // chunks
  std::uint64_t answered_bytes = 0;
  std::uint64_t silences = 0;  // after which chunks were asked for again
  std::array<std::uint64_t, kRefusals> refused{};

  std::uint64_t refused_in_all() const;
};

/// `now` never decreases from call to call.
class Spreader {
 public:
  /// The most packets that the caller may hold. The bytes of a packet stay while fewer than this many later
  /// packets are taken, and until `halt` or `pause`. Packets leave in the order in which they were taken, to
  /// any destination.
  static constexpr std::size_t kHeldPackets = 256;

  /// Throws std::invalid_argument for options outside the protocol's limits.
  explicit Spreader(const SpreaderOptions& options);
  Spreader(const Spreader&) = delete;
  Spreader& operator=(const Spreader&) = delete;

  /// All ranks have begun this task. `task` is the same number on all ranks, and greater than all earlier
  /// ones of the group. Its low 32 bits go into packets. `chunk_bytes` is the payload of a packet, the same
  /// on all ranks. `unfinished` is how many tasks right before this one were not done when a rank entered
  /// READY, the maximum of all ranks. Older tasks are forgotten. The slice's memory stays valid until its
  /// Done, or `halt`. Throws std::invalid_argument for a slice that this group cannot carry, and ignores it.
  void start(std::uint64_t task, const Slice& slice, std::size_t chunk_bytes, std::size_t unfinished,
             Time now);
  /// Sets `unfinished` of a task that was started when the number was not known.
  void forget(std::uint64_t task, std::size_t unfinished);
  /// Takes a SPREAD or FETCH from the network, from any sender. `near` is used before the first task: a
  /// number near the present task numbers of the tree.
  void receive(Bytes datagram, Time now, std::uint64_t near = 0);
  /// The next packet to send now; its bytes are empty if nothing is to be sent. Packets that are adjacent in
  /// memory and have the same destination may leave as one super-packet.
  Packet transmit(Time now);
  /// Reductions use the same links now, and `round_trip` is that of their chunks; 0: no reductions. They
  /// count as one more rank that sends to all. Packets may wait behind theirs, so a silence lasts at least
  /// two of these round trips.
  void set_reducing(Duration round_trip) { reducing_ = round_trip; }
  /// When `expire` must be called; kNever if not.
  Time deadline() const;
  void expire(Time now);
  std::optional<Done> poll();

  /// Drops all tasks, without events; the next one may be started at once.
  void halt();
  /// Sends nothing until `resume`. The caller must discard packets from `transmit` that have not left.
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
  /// A FETCH that came, or its unanswered rest. Chunks that already wait for a rank are not taken again. A
  /// rank that gets no answer repeats its question.
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
  std::uint64_t near_ = 0;              // used before `last_task_` is known
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
  Time quiet_at_ = kNever;  // unless a chunk of the first unfinished task comes
  int silences_ = 0;        // since the last such chunk
  bool was_late_ = false;   // a timer was late since then
  static constexpr Duration kLeastCalm = 5 * kMillisecond;
  Duration calm_ = kLeastCalm;  // the shortest silence after which to ask
  bool hasty_ = false;          // an answer brought a chunk that was here already
  static constexpr std::uint32_t kLeastReach = 4;
  std::uint32_t reach_ = kLeastReach;  // the next silence asks for this many chunks beyond the last
  RoundTrip answer_time_;
  Time asked_at_ = kNever;  // when the question in `timed_` was sent
  Question timed_{};
};

}  // namespace railweave::spread
