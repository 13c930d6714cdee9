// SPDX-License-Identifier: Apache-2.0
// The calls of one rank from their submission until no rank needs them any more, and the pieces of them that
// wait or run on each channel.
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

/// A rail's main channel, which every call goes by, or the one on which lost pieces are repaired.
struct ChannelId {
  std::size_t rail;
  bool repair = false;

  bool operator==(const ChannelId&) const = default;
};

/// What the caller of a collective hands over. Both arrays stay valid until the call is complete.
struct Submission {
  CallDescription call;
  const std::byte* input;
  std::byte* output;
  std::span<const Part> parts;
  Duration expected = 0;  // 0: unknown
};

/// Bookkeeping without threads, sockets or a clock.
///
/// With `keep`, rails write into memory of this table, so that a call whose rail has died can be repaired;
/// the result is copied to the caller piece by piece when it is there, and kept until `release`. Of
/// collectives that are repeated even when some ranks have completed them (all but all_reduce) the input is
/// kept as well.
class Calls {
 public:
  /// Memory that a call is given before it is submitted.
  struct Memory {
    BufferPool::Buffer result{};
    BufferPool::Buffer input{};

    std::size_t bytes() const { return result.bytes() + input.bytes(); }
  };
  /// A part of a result on its way to the caller.
  struct Delivery {
    std::uint32_t op_index;
    std::byte* to;
    const std::byte* from;
    std::size_t bytes;
  };
  struct Finished {
    std::uint32_t op_index;
    std::uint64_t bytes;  // of the piece, as tensor_bytes
    Time start;           // when the channel was free for it
    bool last;            // the call's result is there
  };
  struct Laggard {
    std::size_t rail;
    std::uint32_t op_index;
    Duration others;    // from the submission until all other pieces were done
    Duration expected;  // as submitted
    Time since;         // when the rail was free for its piece
  };

  struct Front {
    std::uint64_t id;
    std::uint32_t op_index;
    Duration expected;  // of the call, or of the piece that is repaired; 0: unknown
    bool alone;         // no other rail's pieces show how long it may take
  };

  Calls(int rank, int world_size) : rank_(rank), world_size_(world_size) {}

  void add_rail();
  /// From now on; before the first call. What is lost is repaired in proportion to `rates`, by rail, the same
  /// on all ranks; equally if they are not all known (0).
  void keep(std::vector<std::uint64_t> rates);

  /// The index of the next call. All before it have been submitted.
  std::uint32_t next() const { return next_; }
  /// Bytes that are kept until `release`.
  std::size_t kept_bytes() const { return pool_.taken(); }
  /// Without those of the call that keeps most.
  std::size_t kept_beside_largest() const;
  std::size_t kept_calls() const { return calls_.size(); }

  /// What `submit` wants of memory for this call, with nothing in it. std::bad_alloc.
  Memory reserve(const CallDescription& call);
  /// Fills it with what is to be kept. Touches nothing of this table.
  void fill(const Submission& submission, const Memory& memory) const;
  /// Takes the next call; cuts it as the commits say that came before it and hold for it.
  void submit(const Submission& submission, Memory memory, Time now);
  /// Uses up the next index without a call, which has failed before it began.
  void skip();
  /// The next slice of a call that this channel may start, in order; at most of `upto`.
  std::optional<Slice> take(ChannelId channel, std::uint32_t upto);
  /// What this rank calls under that index, by the channel's slice of the call; of 0 elements if the call is
  /// pending and the main channel has no part in it. Nothing if there is no such slice, or it has ended.
  std::optional<MessageLabel> label(ChannelId channel, const SliceKey& key) const;
  /// The channel's slices end in the order in which they were taken. Nothing if this is not the one.
  std::optional<Finished> finish(ChannelId channel, std::uint64_t id, Time now);
  /// Whether results are there that their callers have not got.
  bool delivering() const { return !deliveries_.empty(); }
  /// The next part of the oldest of these, to be copied without delay; at most so many bytes.
  Delivery next_delivery(std::size_t most) const;
  /// That part has been copied: with the last one, the call is complete.
  void delivered(const Delivery& delivery);

  bool pending(std::uint32_t op_index) const;  // submitted and not complete
  std::optional<CallDescription> description(std::uint32_t op_index) const;
  bool has_part(std::uint32_t op_index, std::size_t rail) const;
  std::vector<std::size_t> lagging(std::uint32_t op_index) const;
  std::size_t pending_calls() const { return pending_; }

  /// Begins no movable piece until `apply`. How far this rank is: per channel, it has all that it needs
  /// before that call, or that place. Of main channels that are `alive`: the place of the first movable piece
  /// that the rail has not begun; of one that comes back: how many wait on the others from there on.
  recovery::Position prepare(recovery::RailSet alive);
  bool preparing() const { return preparing_; }
  /// Calls before the boundary are cut again, without their pieces on channels that have ended.
  void apply(const recovery::Commit& commit);
  /// Calls before this one are complete here.
  std::uint32_t completed() const { return completed_; }
  /// No rank needs calls before this one.
  void release(std::uint32_t op_index);
  /// Drops all calls. The indices of those that were pending.
  std::vector<std::uint32_t> abort();

  /// The oldest piece on the rail's main channel, if it is all that its call, which other rails carry too,
  /// waits for.
  std::optional<Laggard> laggard(std::size_t rail) const;
  /// The oldest piece that a channel's rail has.
  std::optional<Front> front(ChannelId channel) const;

 private:
  struct Call {
    CallDescription description;
    const std::byte* input;
    std::byte* output;  // what rails write
    std::byte* caller;  // where the result goes
    Memory memory{};
    std::vector<Part> parts{};
    std::vector<Piece> pieces{};
    std::size_t missing = 0;    // pieces that are needed and not done
    std::size_t delivered = 0;  // bytes of the result that the caller has
    bool complete = false;
    Time submitted = 0;
    Time last_done = 0;
    Duration expected = 0;
  };
  struct Place {
    std::uint32_t op_index;
    std::uint16_t part;  // of the call's pieces on this channel
    std::uint64_t id;
    bool needed;
    bool movable;
  };
  struct Channel {
    std::deque<Place> queue{};  // pieces that are not done, in order
    std::size_t taken = 0;      // so many of them are with the rail
    std::uint32_t ended = 0;    // so many were before them
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
  BufferPool pool_;                            // outlives the calls
  std::vector<Channel> main_;
  std::vector<Channel> repair_;
  std::deque<Call> calls_;                // from first_ on
  std::deque<std::uint32_t> deliveries_;  // calls whose results are there, in that order
  std::vector<Cut> standing_;             // commits that hold for calls that have not been submitted yet
  std::uint32_t last_boundary_ = 0;       // of the last commit
  recovery::RailSet alive_ = ~recovery::RailSet{0};  // since then
  bool preparing_ = false;
  std::uint32_t first_ = 0;
  std::uint32_t next_ = 0;
  std::uint32_t completed_ = 0;
  std::uint32_t released_ = 0;
  std::uint64_t next_id_ = 1;
  std::size_t pending_ = 0;
};

}  // namespace railweave
