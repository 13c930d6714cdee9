// SPDX-License-Identifier: Apache-2.0
// The network as the algorithms see it: messages between pairs of ranks, in order, straight into place.
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

/// Event loops send the signs of life, not the callers' threads. So a rank that computes is not silent.
struct Liveness {
  Duration timeout = 5 * kSecond;  // without a sign from a peer's process until it counts as gone; 0: never
  Duration interval = kSecond;     // between two signs on an idle connection; 0: none
};

/// Receives the events of a transport, sometimes from inside `post_send` and `post_receive`.
class TransportListener {
 public:
  virtual ~TransportListener() = default;
  /// The oldest unfinished send to `peer` is done: its buffer is the sender's again.
  virtual void sent(int peer, Time now) = 0;
  /// The oldest unfinished receive from `peer` is done: its buffer holds the message.
  virtual void received(int peer, Time now) = 0;
  /// All peers are connected, so messages that were held back may leave. Called once per connect or restart.
  virtual void joined(Time) {}
  /// The peer has said goodbye and will post nothing more. Messages that it has not posted will fail.
  virtual void left(int, Time) {}
  /// Returns the label under which this rank takes part in that slice, with 0 elements if the call is only on
  /// this rank's other rails. Returns nothing if this rank has not come to the slice, or is past it.
  virtual std::optional<MessageLabel> own_label(const SliceKey&) const { return std::nullopt; }
  /// The transport has given up; nothing completes after this, until it is restarted. `failure.rank` is the
  /// peer concerned.
  virtual void failed(const Failure& failure, Time now) = 0;
};

/// Messages between this rank and its peers. Per peer and direction they are in order: the k-th send to a
/// peer meets the peer's k-th receive from this rank. Their sizes and labels must agree, else both sides fail
/// with kMismatch and a message that holds both labels. A buffer given to `post_*` stays valid and, if it is
/// being sent, unchanged until its completion or until `abort` returns. Messages are never empty. All calls
/// are made on the loop's thread.
class Transport {
 public:
  virtual ~Transport() = default;
  virtual std::string_view kind() const = 0;
  /// The number of ranks, and this rank. Both are set once the transport is connected.
  virtual int world_size() const = 0;
  virtual int rank() const = 0;
  virtual void set_listener(TransportListener* listener) = 0;
  /// Messages posted from now on belong to this call.
  virtual void begin(const MessageLabel& label, Time now) = 0;
  /// A call has begun that has no part on this transport. A message for that call is a mismatch.
  virtual void skip_call(Time) {}
  virtual void post_send(int peer, Bytes data, Time now) = 0;
  virtual void post_receive(int peer, MutableBytes into, Time now) = 0;
  /// True if the peer's process has recently given a sign of life.
  virtual bool heard_recently(int, Time) const { return false; }
  /// When `expire` must be called; kNever if it need not be.
  virtual Time deadline() const { return kNever; }
  virtual void expire(Time) {}
  /// Tells the peers why this rank gives up, as far as the network allows. They fail with the same failure
  /// and pass it on, because not every rank is a peer.
  virtual void announce(const Failure& failure, Time now) = 0;
  /// Releases all posted buffers. Partly received messages are discarded, and nothing completes any more.
  virtual void abort() = 0;
  /// Releases all buffers and connections at once, without telling the peers. The listener hears nothing more
  /// until `restart`. May be called from inside the listener, and repeatedly.
  virtual void halt(Time now) = 0;
  /// Connects to the peers again. All ranks give the same `incarnation`, greater than before (`connect` is
  /// 0). Packets of older incarnations are dropped. Peers may be late: the transport tries again until
  /// `halt`. Throws std::logic_error if the transport is not halted or `incarnation` is not new.
  virtual void restart(std::uint32_t incarnation, Time now) = 0;
  /// Numbers that must be equal on all ranks after a restart. The owner reads them after `halt`, and sets
  /// each one to the greatest of all ranks before `restart`.
  virtual std::vector<std::uint64_t> positions() const { return {}; }
  virtual void set_positions(const std::vector<std::uint64_t>&) {}
  /// True if every peer is connected, so that messages may be posted.
  virtual bool ready() const = 0;
  /// Says goodbye: nothing more will be posted. `closed` is true once no peer needs anything from this rank
  /// any more.
  virtual void close(Time) {}
  virtual bool closed() const { return true; }
  /// Counts of the wire. The rail counts `slices`, `payload_bytes` and `busy`, which stay 0 here.
  virtual RailStats stats() const = 0;
};

}  // namespace railweave
