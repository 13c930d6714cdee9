// SPDX-License-Identifier: Apache-2.0
// The limit of packet I/O: a switch without an engine.
#pragma once

#include "ports/switch_ports.hpp"

namespace railweave::load {

/// Ports without an engine. UDP packets return to their senders, as results of the aggregation program do.
class Echo final : public ports::SwitchPorts {
 public:
  using SwitchPorts::SwitchPorts;
  ~Echo() override { stop(); }

 private:
  void process(ports::Port& port, MutableBytes packet, std::uint64_t now_us) override;
};

}  // namespace railweave::load
