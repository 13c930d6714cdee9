// SPDX-License-Identifier: Apache-2.0
// Input and output of a queue pair: options, work requests, completions, counts.
#pragma once

#include <algorithm>
#include <cstdint>
#include <deque>
#include <optional>

#include "core/bytes.hpp"
#include "core/time.hpp"
#include "roce/packet.hpp"

namespace railweave::roce {

/// Both ends must agree on the path MTU, and on each other's numbers.
struct QueuePairOptions {
  std::uint32_t qpn = 0;  // own number, 24 bits; 0 and 1 are reserved
  std::uint32_t peer_qpn = 0;
  std::uint32_t send_psn = 0;                  // first PSN that this end sends
  std::uint32_t receive_psn = 0;               // first PSN that the peer sends
  std::size_t path_mtu = 1024;                 // payload bytes per packet: 256, 512, 1024, 2048 or 4096
  std::int64_t window = 64;                    // packets sent and not acknowledged, at most
  std::int64_t min_window = 8;                 // lower bound after losses
  std::int64_t most_window = 1024;             // upper bound if the peer runs late
  Duration window_time = 0;                    // link time of a window; 0: unknown, never beyond `window`
  Duration first_timeout = 20 * kMillisecond;  // before a round trip has been measured
  Duration min_timeout = 4 * kMillisecond;
  Duration max_timeout = 250 * kMillisecond;
  int retries = 7;              // retransmissions without progress before the connection fails
  int rnr_retries = 7;          // the same for "receiver not ready"; 7: unlimited, as in the specification
  std::uint8_t rnr_timer = 14;  // code that this end sends: 1.28 ms
  // A switch sums this connection: a sum leaves once all ranks have sent, so a second NAK is no new evidence.
  bool summed = false;

  /// Throws std::invalid_argument naming the field, the value and what is allowed.
  void check() const;
};

/// An entry of the send queue. Buffers stay valid until the completion.
struct WorkRequest {
  std::uint64_t id = 0;
  Operation operation = Operation::kSend;  // kSend or kWrite
  Bytes local{};                           // data to send: at most 2^31 bytes
  std::optional<std::uint32_t> immediate{};
  std::uint64_t remote_address = 0;  // of a WRITE
  std::uint32_t rkey = 0;
  bool quiet = false;  // its completion may come with a later request's; other SENDs are solicited
};

/// An entry of the receive queue. A SEND consumes it, or a WRITE with immediate data, which does not touch
/// the buffer.
struct ReceiveRequest {
  std::uint64_t id = 0;
  MutableBytes buffer{};
};

enum class CompletionKind : std::uint8_t { kSend, kWrite, kReceive, kReceiveWrite };

enum class Status : std::uint8_t {
  kSuccess,
  kFlushed,               // the queue pair failed before this request's turn
  kRetriesExceeded,       // the peer does not answer
  kRnrRetriesExceeded,    // the peer answers, but posts no receive
  kRemoteAccessError,     // the peer refused the rkey, range or access
  kRemoteInvalidRequest,  // the peer refused the request: wrong size or order
  kRemoteOperationalError,
  kBadResponse,  // only from devices: an answer that does not fit the request
};

struct Completion {
  std::uint64_t id = 0;
  CompletionKind kind = CompletionKind::kSend;
  Status status = Status::kSuccess;
  std::uint32_t byte_count = 0;
  std::optional<std::uint32_t> immediate{};
};

using Completions = std::deque<Completion>;

struct QueuePairStats {
  std::uint64_t packets_sent = 0;
  std::uint64_t packets_received = 0;
  std::uint64_t payload_bytes = 0;    // of request packets, without retransmissions
  std::uint64_t retransmissions = 0;  // request packets sent again
  std::uint64_t resent_bytes = 0;     // retransmitted, from the BTH to the padding
  std::uint64_t timeouts = 0;
  std::uint64_t naks_sent = 0;
  std::uint64_t naks_received = 0;
  std::uint64_t duplicates = 0;    // requests already carried out, answers without news
  std::uint64_t out_of_order = 0;  // requests ahead of the expected PSN, dropped
  std::uint64_t refused = 0;       // malformed, for another queue pair or partition, impossible in this state
};

/// Returns the packets of a message of `size` bytes. An empty message takes one packet.
constexpr std::int64_t packets_for(std::size_t size, std::size_t path_mtu) {
  return std::max<std::int64_t>(1, static_cast<std::int64_t>((size + path_mtu - 1) / path_mtu));
}

/// Payload of a message's packet `index`.
template <typename Span>
Span payload_of(Span message, std::int64_t index, std::size_t path_mtu) {
  const std::size_t offset = static_cast<std::size_t>(index) * path_mtu;
  return message.subspan(offset, std::min(path_mtu, message.size() - offset));
}

/// Returns the time that an RNR NAK's timer code asks to wait. Source: InfiniBand specification, table
/// "Encoding for RNR NAK Timer Field".
Duration rnr_delay(std::uint8_t code);

}  // namespace railweave::roce
