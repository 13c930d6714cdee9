// SPDX-License-Identifier: Apache-2.0
// The RDMA device as a rail sees it: numbered reliable connections, and one descriptor that wakes the loop.
// One implementation runs in user space (rdma_endpoint.hpp), the other uses libibverbs (verbs_device.hpp).
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "core/failure.hpp"
#include "roce/frame.hpp"
#include "roce/work.hpp"

namespace railweave {

/// Bytes are counted as on the link, from the Ethernet header up. A super-packet counts as several frames.
struct RdmaEndpointStats {
  std::uint64_t frames_sent = 0, bytes_sent = 0;
  std::uint64_t frames_received = 0, bytes_received = 0;  // all RoCEv2 frames for this address
  std::uint64_t refused = 0;               // malformed, wrong ICRC, or not from the queue pair's peer
  std::uint64_t strangers = 0;             // for unknown queue pair numbers
  std::uint64_t segmentation_refused = 0;  // super-packets that the kernel refused to cut
};

/// A queue pair that is connected to one peer's queue pair.
class RdmaConnection {
 public:
  virtual ~RdmaConnection() = default;

  /// Requests are carried out and completed in order. The connection owns a buffer until its completion.
  virtual void post(const roce::WorkRequest& request) = 0;
  virtual void post_receive(const roce::ReceiveRequest& request) = 0;
  virtual std::optional<roce::Completion> poll() = 0;

  /// Memory that the peer may write once.
  struct Offer {
    std::uint64_t address;
    std::uint32_t rkey;
  };
  virtual Offer offer(MutableBytes into) = 0;
  /// Ends an offer that the peer has written. Afterwards its message is in `into`.
  virtual void take(std::uint32_t rkey) = 0;
  /// Ends an offer just before the connection ends.
  virtual void drop(std::uint32_t rkey) = 0;
  /// Gives `into` back to its owner. Later writes of the peer are discarded, without an error.
  virtual void withdraw(std::uint32_t rkey) = 0;
  /// Memory that the connection owns. The peer may write it repeatedly until `abort`. One per connection.
  struct Region {
    MutableBytes bytes;
    std::uint32_t rkey;
  };
  virtual Region region(std::size_t bytes) = 0;

  /// As QueuePair's. The rail calls it once the peer has answered.
  virtual void set_patience(int retries, Duration max_timeout) = 0;
  /// True if a request is posted whose completion is an answer of the peer.
  virtual bool awaits_answer() const = 0;
  /// Both are as in QueuePair.
  virtual std::size_t release_buffers() = 0;
  virtual void abort() = 0;
  /// The reason, if the connection has ended. A failed completion may give a more exact reason.
  struct Fault {
    FailureKind kind;
    std::string message;  // to be put behind the peer's name
  };
  virtual std::optional<Fault> fault() const = 0;
  virtual const roce::QueuePairStats& stats() const = 0;
};

class RdmaDevice {
 public:
  virtual ~RdmaDevice() = default;

  /// "in user space", "on device mlx5_0"
  virtual std::string where() const = 0;
  /// True if queue pairs keep their numbers over restarts, because the device assigns the numbers.
  virtual bool keeps_numbers() const = 0;
  /// Returns a number that no queue pair here has or has reserved.
  virtual std::uint32_t reserve_queue_pair_number() = 0;
  /// Connects the queue pair `options.qpn`, which is reserved and not connected yet. The device's path MTU
  /// applies. The reference stays valid until `disconnect`.
  virtual RdmaConnection& join(const roce::QueuePairOptions& options, roce::Ipv4Address peer,
                               const roce::MacAddress& peer_mac, Time now) = 0;
  /// Ends a queue pair. Packets for its number are dropped, and not counted as strangers, until `release`.
  virtual void disconnect(std::uint32_t number) = 0;
  /// Drops packets for a future queue pair's number in the same way.
  virtual void expect(std::uint32_t) {}
  /// From now on, packets for this number count as strangers.
  virtual void release(std::uint32_t) {}

  /// Readable when something has arrived.
  virtual int fd() const = 0;
  /// Gives the packets that have arrived to the queue pairs. Returns false if there may be more.
  virtual bool receive(Time now) = 0;
  /// Sends the queue pairs' packets, as far as possible now.
  virtual void transmit(Time now) = 0;
  /// True if frames wait until the descriptor is writable.
  virtual bool blocked() const { return false; }
  virtual void on_writable() {}
  virtual Time deadline() const = 0;
  virtual void expire(Time now) = 0;
  virtual const RdmaEndpointStats& stats() const = 0;
};

}  // namespace railweave
