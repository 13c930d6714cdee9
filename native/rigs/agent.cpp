// SPDX-License-Identifier: Apache-2.0
// railweave._rigs.agent: an agent with rails that throw, for tests.
#include "bindings/agent.hpp"

#include <nanobind/nanobind.h>

#include <map>
#include <memory>
#include <string>
#include <utility>

#include "rigs/breaking_rail.hpp"
#include "rigs/rig.hpp"

namespace nb = nanobind;
using namespace nb::literals;

namespace railweave {
namespace {

class BreakingAgent : public PythonAgent {
 public:
  using PythonAgent::PythonAgent;

  std::pair<std::size_t, std::uint16_t> add_breaking_tcp(std::string name, std::string address,
                                                         std::string interface, double peer_timeout_s) {
    TcpTransport* transport = nullptr;
    BreakingRail* rail = nullptr;
    const std::size_t index = agent().add_rail(
        std::move(name), {address, interface}, 0, [&](EventLoop& loop, RailListener& listener) {
          auto made = std::make_unique<TcpTransport>(
              loop, TcpTransportOptions{.local = {.address = address, .interface = interface},
                                        .liveness = liveness(peer_timeout_s)});
          transport = made.get();
          auto breaking = std::make_unique<BreakingRail>(loop, std::move(made), listener);
          rail = breaking.get();
          return breaking;
        });
    tcp_[index] = transport;
    breaking_[index] = rail;
    return {index, transport->port()};
  }

  void break_at(std::size_t rail, std::string where, int times) {
    agent().on_loop([&] { breaking_.at(rail)->break_at(std::move(where), times); });
  }

 private:
  std::map<std::size_t, BreakingRail*> breaking_;
};

}  // namespace

void bind_agent(nb::module_& m) {
  nb::module_ sub = rig_submodule(m, "agent", "An agent with rails that throw");
  using Release = nb::call_guard<nb::gil_scoped_release>;
  nb::class_<BreakingAgent, PythonAgent>(sub, "BreakingAgent")
      .def(nb::init<int, int>(), "rank"_a, "world_size"_a)
      .def("add_breaking_tcp", &BreakingAgent::add_breaking_tcp, "name"_a, "address"_a, "interface"_a,
           "peer_timeout_s"_a = kPeerTimeoutS, Release(), "A TCP rail that `break_at` breaks")
      .def("break_at", &BreakingAgent::break_at, "rail"_a, "where"_a, "times"_a = 1, Release(),
           "The next calls of this function of a breaking rail throw");
}

}  // namespace railweave
