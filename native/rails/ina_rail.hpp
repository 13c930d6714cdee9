// SPDX-License-Identifier: Apache-2.0
// The in-network rail: an ina::Endpoint on a UDP socket.
#pragma once

#include <cstdint>
#include <deque>
#include <memory>
#include <string>
#include <vector>

#include "ina/endpoint.hpp"
#include "loop/event_loop.hpp"
#include "rails/datagram_socket.hpp"
#include "rails/rail.hpp"

namespace railweave {

struct InaRailOptions {
  std::string address;         // this host's, on the rail's plane
  std::string interface = {};  // empty: the route decides
  std::uint64_t rate_bps = 0;  // of the link; 0: unshaped
  ina::WindowOptions window = {};
};

/// What the controller answers to a join.
struct InaGroup {
  std::uint16_t group;
  std::string virtual_address;
  std::uint8_t child;
  std::uint32_t slots;
  std::uint32_t lanes;
  int world_size;
};

/// Opened in two steps: the constructor binds the socket, so that its port can be told to the controller;
/// `attach` follows the controller's answer. Both throw std::runtime_error or std::invalid_argument that
/// names what is wrong.
class InaRail final : public Rail, private ReadyHandler {
 public:
  /// `index` is the rail's place in the agent, handed back to `listener`. On the loop's thread, as everything
  /// here.
  InaRail(std::size_t index, EventLoop& loop, const InaRailOptions& options, RailListener& listener);
  ~InaRail() override;

  /// The UDP port to which the switch sends results.
  std::uint16_t port() const { return socket_.port(); }
  void attach(const InaGroup& group);
  /// Null before `attach`.
  const ina::Endpoint* endpoint() const { return endpoint_.get(); }

  std::string_view kind() const override { return "ina"; }
  void start(const Slice& slice, Time now) override;
  Time deadline() const override { return endpoint_ ? endpoint_->deadline() : kNever; }
  void expire(Time now) override;
  void abort() override;
  RailStats stats() const override;

 private:
  void on_ready(std::uint32_t events, Time now) override;
  void flush(Time now);
  bool push_unsent();
  void report(Time now);

  const std::size_t index_;
  EventLoop& loop_;
  const InaRailOptions options_;
  RailListener& listener_;
  DatagramSocket socket_;
  std::unique_ptr<ina::Endpoint> endpoint_;
  std::vector<Bytes> unsent_;  // taken from the endpoint; its slots keep the bytes
  bool blocked_ = false;       // the socket is full: EPOLLOUT is awaited
  std::deque<Slice> slices_;   // in progress
  Time busy_since_ = 0;
  RailStats stats_;
};

}  // namespace railweave
