// SPDX-License-Identifier: Apache-2.0
// The receive path of an in-network rail without the rest: batches of datagrams that lie ready before the
// clock runs go into the machine that judges and places them, straight from memory or through the kernel.
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

/// A machine that receives, and the datagrams for it.
class Reception {
 public:
  virtual ~Reception() = default;
  /// Brings the machine to where it waits for a batch, and returns that: datagrams of one size, one behind
  /// the other. The memory to which they belong holds something else.
  virtual Bytes next_batch(Time now) = 0;
  virtual void take(Bytes datagram, Time now) = 0;
  /// Once the batch is taken: whether every byte of it is in its place.
  virtual bool placed() = 0;

  std::size_t payload_bytes() const { return payload_; }
  std::size_t datagram_bytes() const { return ina::kHeaderBytes + payload_ + code_; }

 protected:
  /// `code_bytes`: behind the payload.
  Reception(std::size_t payload_bytes, std::size_t code_bytes);

  std::size_t payload_;
  std::size_t code_;
  std::vector<std::byte> wanted_;
  std::vector<std::byte> output_;
  std::vector<std::byte> wire_;
};

/// One broadcast per batch, of another rank's tensor: SPREAD datagrams. std::invalid_argument for a payload
/// that no packet has.
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

/// One sum of float32 per batch: RESULT datagrams, of chunks that are all on their way. std::invalid_argument
/// for a payload that no packet has.
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

/// What was taken, and how long this took: on the clock, and of the processor.
struct Reading {
  std::uint64_t packets = 0;
  Duration clock = 0;
  Duration cpu = 0;
};

/// For about so long. std::runtime_error if a byte is not in its place.
Reading receive_from_memory(Reception& reception, Duration duration);
/// The same through two UDP sockets of 127.0.0.1; another thread sends, on this CPU. `super_packets`: whether
/// they pass the kernel as such. std::runtime_error also if a datagram is lost.
Reading receive_from_kernel(Reception& reception, Duration duration, bool super_packets, int send_on);
/// Batches of all groups, numbered from 1, are taken by a thread on each of these CPUs at once, which has
/// every so manieth group: from memory, or from a socket of its own on one port, where all lies ready. The
/// longest that one takes counts. std::runtime_error as above.
Reading receive_by_workers(std::span<const std::unique_ptr<Reception>> groups, Duration duration,
                           std::optional<bool> super_packets, const std::vector<int>& cpus);

}  // namespace railweave::load
