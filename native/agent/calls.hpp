// SPDX-License-Identifier: Apache-2.0
// The calls of one rank, from submission until no rank needs them any more, and their pieces on each channel.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <optional>
#include <span>
#include <vector>

#include "agent/buffer_pool.hpp"
#include "agent/pieces.hpp"
#include "core/collective.hpp"
#include "core/time.hpp"
#include "rails/rail.hpp"
#include "recovery/types.hpp"

namespace railweave {

/// A rail's main channel, which all calls use, or the repair channel for lost pieces.
struct ChannelId {
  std::size_t rail;
  bool repair = false;

  bool operator==(const ChannelId&) const = default;
};

/// The arguments of a collective. Both arrays must stay valid until the call is complete.
struct Submission {
  CallDescription call;
  const std::byte* input;
  std::byte* output;
  std::span<const Part> parts;
  Duration expected = 0;  // 0: unknown
};

/// Bookkeeping without threads, sockets or a clock.
///
/// With `keep`, rails write into memory of this table, so that a call can be repaired when a rail dies. A
/// complete result is copied to the caller in pieces and kept until `release`. All collectives except
/// all_reduce keep their inputs too, because they may be repeated after some ranks have completed them.
class Calls {
 public:
  /// Memory that a call gets before its submission.
  struct Memory {
    BufferPool::Buffer result{};
    BufferPool::Buffer input{};

    std::size_t bytes() const { return result.bytes() + input.bytes(); }
  };
  /// A part of a result that is being copied to the caller.
  struct Delivery {
    std::uint32_t op_index;
    std::byte* to;
    const std::byte* from;
    std::size_t bytes;
  };
  struct Finished {
    std::uint32_t op_index;
    std::uint64_t bytes;  // size of the piece, see tensor_bytes
    Time start;           // when the channel was free for it
    bool last;            // the call's result is complete
  };
  struct Laggard {
    std::size_t rail;
    std::uint32_t op_index;
    Duration others;    // from the submission until all other pieces were done
    Duration expected;  // value from the submission
    Time since;         // when the rail was free for its piece
  };

  struct Front {
    std::uint64_t id;
    std::uint32_t op_index;
    Duration expected;  // of the call, or of the piece that is repaired; 0: unknown
    bool alone;         // no piece of another rail shows how long this one may take
  };

  Calls(int rank, int world_size) : rank_(rank), world_size_(world_size) {}

  void add_rail();
  /// Turns recovery on. Call it before the first call. Lost pieces are spread over the rails in proportion to
  /// `rates` (by rail, the same on all ranks). They are spread equally if any rate is 0 (unknown).
  void keep(std::vector<std::uint64_t> rates);

  /// The index of the next call. All earlier calls have been submitted.
  std::uint32_t next() const { return next_; }
  /// Bytes kept until `release`.
  std::size_t kept_bytes() const { return pool_.taken(); }
  /// kept_bytes without the call that keeps most.
  std::size_t kept_beside_largest() const;
  std::size_t kept_calls() const { return calls_.size(); }

  /// Reserves the memory that this call needs; its content is undefined. Throws std::bad_alloc.
  Memory reserve(const CallDescription& call);
  /// Copies the input that must be kept. Uses no state of this table.
  void fill(const Submission& submission, const Memory& memory) const;
  /// Adds the next call. Cuts it by all earlier commits that apply to it.
  void submit(const Submission& submission, Memory memory, Time now);
  /// Uses the next index for a call that failed before its start.
  void skip();
  /// Returns the next slice that this channel may start, in order. The slice's call is before `upto`.
  std::optional<Slice> take(ChannelId channel, std::uint32_t upto);
  /// The label of this rank's slice for `key` on the channel. If the call is pending and the main channel has
  /// no part in it, the label has slice count 0. Nothing if there is no such slice, or the slice has ended.
  std::optional<MessageLabel> label(ChannelId channel, const SliceKey& key) const;
  /// Ends the oldest slice taken from the channel. Returns nothing if `id` is another slice.
  std::optional<Finished> finish(ChannelId channel, std::uint64_t id, Time now);
  /// Whether any complete result has not been copied to its caller.
  bool delivering() const { return !deliveries_.empty(); }
  /// The next part of the oldest such result, at most `most` bytes. The caller copies it without delay.
  Delivery next_delivery(std::size_t most) const;
  /// Says that the part has been copied. The last part completes the call.
  void delivered(const Delivery& delivery);

  bool pending(std::uint32_t op_index) const;  // submitted and not complete
  std::optional<CallDescription> description(std::uint32_t op_index) const;
  bool has_part(std::uint32_t op_index, std::size_t rail) const;
  std::vector<std::size_t> lagging(std::uint32_t op_index) const;
  std::size_t pending_calls() const { return pending_; }

  /// Stops taking movable pieces until `apply`. Returns this rank's position: by channel, the first call or
  /// place of which it still needs something. For a main channel in `alive`: the place of the first movable
  /// piece that has not begun. For a rail that comes back: the number of pieces that wait on all main
  /// channels.
  recovery::Position prepare(recovery::RailSet alive);
  bool preparing() const { return preparing_; }
  /// Cuts the calls before the boundary again. Pieces on channels that have ended are lost.
  void apply(const recovery::Commit& commit);
  /// Calls before this one are complete on this rank.
  std::uint32_t completed() const { return completed_; }
  /// Says that no rank needs calls before this one.
  void release(std::uint32_t op_index);
  /// Drops all calls and returns the indices of the pending ones.
  std::vector<std::uint32_t> abort();

  /// The oldest piece on the rail's main channel, if it is the only missing piece of its call. The call has
  /// pieces on other rails too.
  std::optional<Laggard> laggard(std::size_t rail) const;
  /// The oldest piece that the channel's rail works on.
  std::optional<Front> front(ChannelId channel) const;

 private:
  struct Call {
    CallDescription description;
    const std::byte* input;
    std::byte* output;  // where rails write
    std::byte* caller;  // where the caller wants the result
    Memory memory{};
    std::vector<Part> parts{};
    std::vector<Piece> pieces{};
    std::size_t missing = 0;    // pieces that are needed and not done
    std::size_t delivered = 0;  // bytes of the result copied to the caller
    bool complete = false;
    Time submitted = 0;
    Time last_done = 0;
    Duration expected = 0;
  };
  struct Place {
    std::uint32_t op_index;
    std::uint16_t part;  // number among the call's pieces on this channel
    std::uint64_t id;
    bool needed;
    bool movable;
  };
  struct Channel {
    std::deque<Place> queue{};  // unfinished pieces, in order
    std::size_t taken = 0;      // number of pieces in `queue` that the rail works on
    std::uint32_t ended = 0;    // number of finished pieces
    Time free_since = 0;        // end of the last piece

    std::uint32_t places() const { return ended + static_cast<std::uint32_t>(queue.size()); }
  };

  Call* find(std::uint32_t op_index);
  const Call* find(std::uint32_t op_index) const;
  Channel& channel(ChannelId id) { return id.repair ? repair_[id.rail] : main_[id.rail]; }
  const Channel& channel(ChannelId id) const { return id.repair ? repair_[id.rail] : main_[id.rail]; }
  std::size_t kept_input(const CallDescription& call) const;
  std::uint32_t reached(const Channel& channel) const;
  std::uint32_t begun(const Channel& channel) const;
  std::uint32_t repaired(const Channel& channel) const;
  Duration repair_time(const CallDescription& call, const Piece& piece) const;
  Duration piece_time(const Call& call, const Piece& piece) const;
  Cut cut_for(const recovery::Commit& commit) const;
  bool holds(const Place& place) const;
  void enqueue(Call& call);
  Slice slice_of(const Place& place) const;
  void complete(Call& call);
  void drop_finished();

  const int rank_;
  const int world_size_;
  bool keeping_ = false;
  std::vector<std::uint64_t> repair_rates_{};  // 1: unknown
  BufferPool pool_;                            // declared before calls_, which uses it
  std::vector<Channel> main_;
  std::vector<Channel> repair_;
  std::deque<Call> calls_;                           // from first_ on
  std::deque<std::uint32_t> deliveries_;             // calls with complete results, in order of completion
  std::vector<Cut> standing_;                        // commits that also apply to calls not submitted yet
  std::uint32_t last_boundary_ = 0;                  // of the last commit
  recovery::RailSet alive_ = ~recovery::RailSet{0};  // as of the last commit
  bool preparing_ = false;
  std::uint32_t first_ = 0;
  std::uint32_t next_ = 0;
  std::uint32_t completed_ = 0;
  std::uint32_t released_ = 0;
  std::uint64_t next_id_ = 1;
  std::size_t pending_ = 0;
};

}  // namespace railweave
