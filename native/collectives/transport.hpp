// SPDX-License-Identifier: Apache-2.0
// What the algorithms ask of a network: messages between pairs of ranks, in order, straight into place.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "collectives/label.hpp"
#include "core/bytes.hpp"
#include "core/failure.hpp"
#include "core/rail_stats.hpp"
#include "core/time.hpp"

namespace railweave {

/// Event loops give signs of life, not the callers' threads, so a rank that computes is not silent.
struct Liveness {
  Duration timeout = 5 * kSecond;  // without a sign from a peer's process until it counts as gone; 0: never
  Duration interval = kSecond;     // between two signs on an idle connection; 0: none
};

/// Told by the transport. May be called from inside `post_send` and `post_receive`: expect it there.
class TransportListener {
 public:
  virtual ~TransportListener() = default;
  /// The oldest unfinished send to `peer` is done: its buffer is the sender's again.
  virtual void sent(int peer, Time now) = 0;
  /// The oldest unfinished receive from `peer` is done: its buffer holds the message.
  virtual void received(int peer, Time now) = 0;
  /// All peers are there: what was held back may go. Told once per connection or restart.
  virtual void joined(Time) {}
  /// The peer has said goodbye: it will post nothing more. What it is still to send or take will fail.
  virtual void left(int, Time) {}
  /// The label under which this rank takes part in that slice, 0 elements if it takes part in the call on
  /// other rails only; nothing if it has not come to the slice, or is past it.
  virtual std::optional<MessageLabel> own_label(const SliceKey&) const { return std::nullopt; }
  /// The transport has given up; nothing completes after this, until it is restarted. `failure.rank` is the
  /// peer concerned.
  virtual void failed(const Failure& failure, Time now) = 0;
};

/// Messages between this rank and its peers. Per peer and direction they are in order: the k-th send to a
/// peer meets the peer's k-th receive from this rank. Their sizes and labels must agree, else both sides fail
/// with kMismatch and a message that holds both labels. A buffer given to `post_*` stays valid and, if it is
/// being sent, unchanged until its completion or until `abort` returns. Messages are never empty. All calls
/// on the loop's thread.
class Transport {
 public:
  virtual ~Transport() = default;
  virtual std::string_view kind() const = 0;
  /// Ranks of the communicator, and which of them this is; set once the transport is connected.
  virtual int world_size() const = 0;
  virtual int rank() const = 0;
  virtual void set_listener(TransportListener* listener) = 0;
  /// Messages posted from now on belong to this call.
  virtual void begin(const MessageLabel& label, Time now) = 0;
  /// A call has begun that has no part on this transport: a message for it is a mismatch.
  virtual void skip_call(Time) {}
  virtual void post_send(int peer, Bytes data, Time now) = 0;
  virtual void post_receive(int peer, MutableBytes into, Time now) = 0;
  /// Whether there was a sign of life of the peer's process a moment ago.
  virtual bool heard_recently(int, Time) const { return false; }
  /// When `expire` wants to be called; kNever if not.
  virtual Time deadline() const { return kNever; }
  virtual void expire(Time) {}
  /// Tells the peers, as well as the network allows, why this rank gives up; they fail with the same failure,
  /// and pass it on: not every rank need be a peer.
  virtual void announce(const Failure& failure, Time now) = 0;
  /// Lets go of all buffers posted. What is half received is thrown away; nothing completes any more.
  virtual void abort() = 0;
  /// Lets go of all buffers and connections, at once and without a word; nothing is told any more until
  /// `restart`. May be called from inside the listener, and repeated.
  virtual void halt(Time now) = 0;
  /// Joins the peers anew. All ranks give the same `incarnation`, greater than before (connecting is 0); what
  /// still comes of an older one is dropped. Peers may be late, and what keeps them is tried again until
  /// `halt`. Throws std::logic_error if the transport is not halted or `incarnation` is not new.
  virtual void restart(std::uint32_t incarnation, Time now) = 0;
  /// Numbers of which all ranks must go on from the greatest: what a halted transport gives, and gets before
  /// it is restarted.
  virtual std::vector<std::uint64_t> positions() const { return {}; }
  virtual void set_positions(const std::vector<std::uint64_t>&) {}
  /// There is a connection to every peer: messages may be posted.
  virtual bool ready() const = 0;
  /// Says goodbye: nothing more will be posted. `closed` is true once no peer needs anything from this rank
  /// any more.
  virtual void close(Time) {}
  virtual bool closed() const { return true; }
  /// Counts of the wire; `slices`, `payload_bytes` and `busy` are the rail's business and stay 0.
  virtual RailStats stats() const = 0;
};

}  // namespace railweave
