// SPDX-License-Identifier: Apache-2.0
// Measures the receive path of an in-network rail alone. Batches of datagrams are ready before the clock
// starts. They go from memory or through the kernel to the machine that checks and places them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "core/bytes.hpp"
#include "core/slice.hpp"
#include "core/time.hpp"
#include "ina/endpoint.hpp"
#include "spread/spreader.hpp"

namespace railweave::load {

/// A receiving machine, and the datagrams for it.
class Reception {
 public:
  virtual ~Reception() = default;
  /// Prepares the machine for a batch and returns the batch: contiguous datagrams of one size. The output
  /// memory has other content before.
  virtual Bytes next_batch(Time now) = 0;
  virtual void take(Bytes datagram, Time now) = 0;
  /// Called after the batch: whether every byte is in its place.
  virtual bool placed() = 0;

  std::size_t payload_bytes() const { return payload_; }
  std::size_t datagram_bytes() const { return ina::kHeaderBytes + payload_ + code_; }

 protected:
  /// `code_bytes`: size of the code after the payload.
  Reception(std::size_t payload_bytes, std::size_t code_bytes);

  std::size_t payload_;
  std::size_t code_;
  std::vector<std::byte> wanted_;
  std::vector<std::byte> output_;
  std::vector<std::byte> wire_;
};

/// One broadcast of another rank's tensor per batch, in SPREAD datagrams. Throws std::invalid_argument for an
/// impossible payload size.
class SpreadReception final : public Reception {
 public:
  explicit SpreadReception(std::size_t payload_bytes, std::uint16_t group = 1);

  Bytes next_batch(Time now) override;
  void take(Bytes datagram, Time now) override { spreader_->receive(datagram, now); }
  bool placed() override;

 private:
  std::uint16_t group_;
  std::optional<spread::Spreader> spreader_;
};

/// One float32 sum per batch, in RESULT datagrams; all chunks are in flight. Throws std::invalid_argument for
/// an impossible payload size.
class ResultReception final : public Reception {
 public:
  explicit ResultReception(std::size_t payload_bytes, std::uint16_t group = 1);

  Bytes next_batch(Time now) override;
  void take(Bytes datagram, Time now) override { endpoint_.receive(datagram, now); }
  bool placed() override;

 private:
  void transmit(Time now);

  ina::Endpoint endpoint_;
};

/// Received packets, with the clock time and processor time for them.
struct Reading {
  std::uint64_t packets = 0;
  Duration clock = 0;
  Duration cpu = 0;
};

/// Measures for about `duration`. Throws std::runtime_error if a byte is not in its place.
Reading receive_from_memory(Reception& reception, Duration duration);
/// The same through two UDP sockets on 127.0.0.1. Another thread sends on CPU `send_on`. `super_packets`:
/// whether the kernel passes super-packets. Throws std::runtime_error also if a datagram is lost.
Reading receive_from_kernel(Reception& reception, Duration duration, bool super_packets, int send_on);
/// Measures one worker thread on each of `cpus`. The batches of the groups, numbered from 1, are dealt to the
/// workers in turn. Each worker takes its batches from memory, or from its own socket on a shared port. All
/// datagrams are ready before the start. The slowest worker counts. Throws std::runtime_error as above.
Reading receive_by_workers(std::span<const std::unique_ptr<Reception>> groups, Duration duration,
                           std::optional<bool> super_packets, const std::vector<int>& cpus);

}  // namespace railweave::load
