// SPDX-License-Identifier: Apache-2.0
// What the RDMA rail asks of a device: reliable connections with numbers of their own, and one descriptor
// that wakes the loop. There is one in user space (rdma_endpoint.hpp), and libibverbs' (verbs_device.hpp).
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "core/failure.hpp"
#include "roce/frame.hpp"
#include "roce/work.hpp"

namespace railweave {

/// Bytes are those on the link: frames from the Ethernet header up, super-packets as the frames they become.
struct RdmaEndpointStats {
  std::uint64_t frames_sent = 0, bytes_sent = 0;
  std::uint64_t frames_received = 0, bytes_received = 0;  // all of RoCEv2 for this address
  std::uint64_t refused = 0;               // malformed, wrong ICRC, or not from the queue pair's peer
  std::uint64_t strangers = 0;             // for queue pairs that are not here
  std::uint64_t segmentation_refused = 0;  // super-packets that the kernel would not cut
};

/// A queue pair that is joined with one peer's.
class RdmaConnection {
 public:
  virtual ~RdmaConnection() = default;

  /// Requests are carried out and completed in order; buffers are the connection's until then.
  virtual void post(const roce::WorkRequest& request) = 0;
  virtual void post_receive(const roce::ReceiveRequest& request) = 0;
  virtual std::optional<roce::Completion> poll() = 0;

  /// Memory that the peer may write once.
  struct Offer {
    std::uint64_t address;
    std::uint32_t rkey;
  };
  virtual Offer offer(MutableBytes into) = 0;
  /// The peer has written: its message is in `into`, and the offer is over.
  virtual void take(std::uint32_t rkey) = 0;
  /// The offer is over, and the connection is about to be.
  virtual void drop(std::uint32_t rkey) = 0;
  /// `into` is its owner's again. What the peer still writes goes nowhere, and is no error.
  virtual void withdraw(std::uint32_t rkey) = 0;
  /// Memory of the connection's own, which the peer may write again and again until `abort`. Once.
  struct Region {
    MutableBytes bytes;
    std::uint32_t rkey;
  };
  virtual Region region(std::size_t bytes) = 0;

  /// The peer has answered: from now on, as QueuePair's.
  virtual void set_patience(int retries, Duration max_timeout) = 0;
  /// Something is posted whose completion is an answer of the peer.
  virtual bool awaits_answer() const = 0;
  /// As QueuePair's, as is `abort`.
  virtual std::size_t release_buffers() = 0;
  virtual void abort() = 0;
  /// Why the connection is over, if it is. A completion that failed may have said more.
  struct Fault {
    FailureKind kind;
    std::string message;  // behind the peer's name
  };
  virtual std::optional<Fault> fault() const = 0;
  virtual const roce::QueuePairStats& stats() const = 0;
};

class RdmaDevice {
 public:
  virtual ~RdmaDevice() = default;

  /// "in user space", "on device mlx5_0"
  virtual std::string where() const = 0;
  /// Whether a number stays over restarts, as it is the device that gives it.
  virtual bool keeps_numbers() const = 0;
  /// A number that no queue pair here has or has been promised.
  virtual std::uint32_t reserve_queue_pair_number() = 0;
  /// Joins the queue pair of that number, which is reserved and not joined. The path MTU is the device's. The
  /// reference stays valid until `disconnect`.
  virtual RdmaConnection& join(const roce::QueuePairOptions& options, roce::Ipv4Address peer,
                               const roce::MacAddress& peer_mac, Time now) = 0;
  /// Ends a queue pair. What still comes for it is dropped in silence, until its number is released.
  virtual void disconnect(std::uint32_t number) = 0;
  /// Likewise what comes for a queue pair that will be.
  virtual void expect(std::uint32_t) {}
  /// What comes for this number from now on is a stranger's.
  virtual void release(std::uint32_t) {}

  /// Readable when something has arrived.
  virtual int fd() const = 0;
  /// What has arrived, into the queue pairs; false if there may be more.
  virtual bool receive(Time now) = 0;
  /// What queue pairs have to send, as far as it can go now.
  virtual void transmit(Time now) = 0;
  /// Frames wait until the descriptor is writable.
  virtual bool blocked() const { return false; }
  virtual void on_writable() {}
  virtual Time deadline() const = 0;
  virtual void expire(Time now) = 0;
  virtual const RdmaEndpointStats& stats() const = 0;
};

}  // namespace railweave
