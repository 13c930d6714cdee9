// SPDX-License-Identifier: Apache-2.0
// railweave._native.agent: the agent of a communicator. Nothing here holds the GIL while it waits.
#include "agent/agent.hpp"

#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/vector.h>

#include <map>
#include <system_error>
#include <tuple>

#include "bindings/agent_values.hpp"
#include "bindings/breaking_rail.hpp"
#include "rails/composed_rail.hpp"
#include "rails/guarded_rail.hpp"
#include "rails/ina_rail.hpp"
#include "rails/rdma_transport.hpp"
#include "rails/ring_rail.hpp"
#include "rails/sum_all_reduce.hpp"
#include "rails/tcp_transport.hpp"

namespace nb = nanobind;
using namespace nb::literals;

RAILWEAVE_TUPLE(railweave::PlanPoint, op_index, changes)

namespace railweave {
namespace {

constexpr double kPeerTimeoutS = 5;
constexpr std::int64_t kComplete = -1;
constexpr std::size_t kMostKeptBytes = std::size_t{256} << 20;
constexpr Duration kRepeatWait =
    100 * kMillisecond;            // what takes longer is waited for where signals are seen
constexpr int kPortAttempts = 16;  // a UDP port whose TCP twin is taken is given back

using InputArray = nb::ndarray<nb::ro, nb::c_contig, nb::device::cpu>;
using OutputArray = nb::ndarray<nb::c_contig, nb::device::cpu>;
// group, virtual address, child, slots, lanes
using Place = std::tuple<std::uint16_t, std::string, std::uint8_t, std::uint32_t, std::uint32_t>;
Liveness liveness(double peer_timeout_s) {
  const auto timeout = nanoseconds(peer_timeout_s);
  const Duration interval = Liveness{}.interval;
  return {.timeout = timeout, .interval = timeout > 0 ? std::min(interval, timeout / 4) : interval};
}

Time deadline_after(std::optional<double> seconds) {
  if (!seconds || *seconds >= 1e9) return kNever;
  return EventLoop::now() + nanoseconds(std::max(0.0, *seconds));
}

// What Python sees of an agent. It remembers which transport is behind which rail, for those that are
// connected later.
class PythonAgent {
 public:
  PythonAgent(int rank, int world_size) : agent_(rank, world_size) {}

  Agent& agent() { return agent_; }

  std::pair<std::size_t, std::uint16_t> add_tcp(std::string name, std::string address, std::string interface,
                                                std::uint64_t rate_bps, double peer_timeout_s, bool mptcp) {
    TcpTransport* transport = nullptr;
    const std::size_t index = agent_.add_rail(
        std::move(name), {address, interface}, rate_bps, [&](EventLoop& loop, RailListener& listener) {
          const TcpTransportOptions options{
              .local = {.address = address, .interface = interface, .mptcp = mptcp},
              .liveness = liveness(peer_timeout_s)};
          auto made = std::make_unique<TcpTransport>(loop, options);
          transport = made.get();
          return std::make_unique<RingRail>(std::move(made), listener, RingRailOptions{.rate_bps = rate_bps});
        });
    tcp_[index] = transport;
    return {index, transport->port()};
  }

  void set_secret(const nb::bytes& secret) { agent_.set_secret(secret_of(secret)); }
  std::pair<std::size_t, std::uint16_t> add_breaking_tcp(std::string name, std::string address,
                                                         std::string interface, double peer_timeout_s) {
    TcpTransport* transport = nullptr;
    BreakingRail* rail = nullptr;
    const std::size_t index = agent_.add_rail(
        std::move(name), {address, interface}, 0, [&](EventLoop& loop, RailListener& listener) {
          auto made = std::make_unique<TcpTransport>(
              loop, TcpTransportOptions{.local = {.address = address, .interface = interface},
                                        .liveness = liveness(peer_timeout_s)});
          transport = made.get();
          auto breaking = std::make_unique<BreakingRail>(listener);
          rail = breaking.get();
          breaking->adopt(
              std::make_unique<RingRail>(std::move(made), breaking->listener(), RingRailOptions{}));
          return breaking;
        });
    tcp_[index] = transport;
    breaking_[index] = rail;
    return {index, transport->port()};
  }

  void break_at(std::size_t rail, std::string where, int times) {
    agent_.on_loop([&] { breaking_.at(rail)->break_at(std::move(where), times); });
  }

  // Returns the ranks that are missing when the time is up.
  std::vector<int> connect_tcp(std::size_t rail, const std::vector<SocketAddress>& members,
                               double timeout_s) {
    TcpTransport& transport = *tcp_.at(rail);
    const Key key = derive_key(agent_.secret(), "tcp", rail);
    agent_.on_rail(rail, [&] { transport.connect(key, agent_.rank(), members, EventLoop::now()); });
    wait_checking_signals(
        [&](Time latest) { return agent_.wait_until([&] { return transport.missing().empty(); }, latest); },
        deadline_after(timeout_s));
    std::vector<int> missing;
    agent_.on_loop([&] { missing = transport.missing(); });
    return missing;
  }

  std::string last_refusal(std::size_t rail) {
    std::string why;
    agent_.on_loop([&] { why = tcp_.at(rail)->last_refusal(); });
    return why;
  }

  std::pair<std::size_t, std::vector<std::uint32_t>> add_rdma(std::string name, std::string address,
                                                              std::string interface, std::uint64_t rate_bps,
                                                              double peer_timeout_s, bool sums,
                                                              RdmaPlace place, std::uint8_t traffic_class) {
    Rdma rdma{};
    const std::size_t index = agent_.add_rail(
        std::move(name), {address, interface}, rate_bps, [&](EventLoop& loop, RailListener& listener) {
          const RdmaTransportOptions options{.interface = interface,
                                             .address = address,
                                             .rate_bps = rate_bps,
                                             .liveness = liveness(peer_timeout_s),
                                             .sums = sums,
                                             .place = place,
                                             .traffic_class = traffic_class};
          auto made = std::make_unique<RdmaTransport>(loop, options, agent_.rank(), agent_.world_size());
          rdma.transport = made.get();
          auto rail = make_rdma_rail(std::move(made), listener, rate_bps);
          rdma.rail = rail.get();
          return rail;
        });
    rdma_[index] = rdma;
    return {index, rdma.transport->queue_pairs()};
  }

  std::pair<bool, std::string> rdma_place(std::size_t rail) const {
    const RdmaTransport& transport = *rdma_.at(rail).transport;
    return {transport.on_device(), transport.where()};
  }

  SumNumbers sum_numbers(std::size_t rail) const { return rdma_.at(rail).transport->sum_numbers(); }

  void sum_rdma(std::size_t rail, const std::vector<SumNumbers>& members, std::size_t window_packets) {
    const Rdma& rdma = rdma_.at(rail);
    agent_.on_rail(rail, [&] {
      rdma.transport->sum(members, window_packets, [rail = rdma.rail](Time now) { rail->moved(now); });
    });
  }

  // Nothing to wait for: whoever is ready first keeps trying.
  void connect_rdma(std::size_t rail, std::vector<RdmaMember> members,
                    const std::vector<std::size_t>& devices) {
    for (const std::size_t rank : devices) members.at(rank).device = true;
    const Key key = derive_key(agent_.secret(), "rdma", rail);
    agent_.on_rail(rail, [&] { rdma_.at(rail).transport->connect(key, members, EventLoop::now()); });
  }

  std::pair<std::size_t, std::uint16_t> add_ina(std::string name, std::string address, std::string interface,
                                                std::uint64_t rate_bps) {
    const InaRailOptions options{.address = address, .interface = interface, .rate_bps = rate_bps};
    Ina ina{};
    TcpTransport* control = nullptr;
    const std::size_t index = agent_.add_rail(
        std::move(name), {address, interface}, rate_bps, [&](EventLoop& loop, RailListener& listener) {
          auto guarded = std::make_unique<GuardedRail>(listener);
          auto composed = std::make_unique<ComposedRail>(guarded->listener());
          for (int attempt = 1;; ++attempt) {
            auto made = std::make_unique<InaRail>(loop, options, composed->rack_listener());
            try {
              // One offer, one port: TCP listens where UDP results arrive. It shares the switch's fate, so
              // that silence says nothing of a peer: it waits for the switch, as the rail does.
              auto beside = std::make_unique<TcpTransport>(
                  loop, TcpTransportOptions{.local = {.address = address, .interface = interface},
                                            .port = made->port(),
                                            .liveness = {.timeout = 0, .interval = 0}});
              ina = {.trees = made.get(),
                     .composed = composed.get(),
                     .rank = agent_.rank(),
                     .world_size = agent_.world_size()};
              control = beside.get();
              composed->adopt(std::move(made), *control, rate_bps);
              TransportListener* const told = &composed->transport_listener();
              guarded->adopt(std::move(composed), std::move(beside), told);
              return guarded;
            } catch (const std::system_error& error) {
              if (error.code() != std::errc::address_in_use || attempt == kPortAttempts) throw;
            }
          }
        });
    ina_[index] = ina;
    tcp_[index] = control;
    return {index, ina.trees->port()};
  }

  void attach_ina(std::size_t rail, const std::vector<Place>& places,
                  const std::vector<SocketAddress>& members, int roots, bool redo) {
    const Ina& ina = ina_.at(rail);
    std::vector<InaGroup> groups;
    for (const Place& place : places) groups.push_back(group_at(ina, place));
    const InaProof proof{.secret = agent_.secret(),
                         .place = std::uint64_t{rail} << 16 | ina.first,
                         .redo_within = redo ? timing::kRedoTime : 0};
    agent_.on_rail(rail, [&] { ina.trees->attach(groups, members, roots, workers_, proof); });
  }

  // Returns the ranks of this rank's member.
  std::vector<int> compose_ina(std::size_t rail, std::vector<std::vector<int>> members, std::uint32_t lanes) {
    Ina& ina = ina_.at(rail);
    const MemberRing ring(std::move(members), agent_.rank(), agent_.world_size());
    ina.rank = ring.place();
    ina.world_size = static_cast<int>(ring.rack().size());
    ina.first = static_cast<std::uint64_t>(ring.rack().front());
    agent_.on_rail(rail, [&] {
      tcp_.at(rail)->befriend(ring.peers());
      ina.composed->compose(ring, lanes);
    });
    return ring.rack();
  }

  std::uint64_t pause_ina(std::size_t rail, std::uint16_t group) {
    std::uint64_t position = 0;
    agent_.on_rail(rail, [&] { position = ina_.at(rail).trees->pause(group, EventLoop::now()); });
    return position;
  }

  void resume_ina(std::size_t rail, std::uint16_t group, const Place& place, std::uint64_t resume_from) {
    const Ina& ina = ina_.at(rail);
    agent_.on_rail(rail,
                   [&] { ina.trees->resume(group, group_at(ina, place), resume_from, EventLoop::now()); });
  }

  void enable_recovery(const std::vector<std::vector<SocketAddress>>& members,
                       std::vector<std::uint64_t> rates_bps, double peer_timeout_s,
                       std::size_t most_kept_bytes) {
    agent_.enable_recovery(members, std::move(rates_bps), nanoseconds(peer_timeout_s), most_kept_bytes);
  }

  void set_spin(double seconds) {
    workers_.spin = nanoseconds(seconds);
    agent_.set_spin(workers_.spin);
  }

  void progress_on(const std::vector<int>& cpus) {
    agent_.progress_on(cpus);
    workers_.cpus = cpus;
  }

  PlanPoint plan_point(std::optional<double> timeout_s) {
    PlanPoint point{};
    const nb::gil_scoped_release release;
    if (!wait_checking_signals([&](Time latest) { return agent_.plan_point(point, latest); },
                               deadline_after(timeout_s)))
      raise_timeout(
          "the ranks have not agreed on the rails that are up, or completed earlier calls, in time");
    return point;
  }

  bool wait_change(std::size_t since, std::optional<double> timeout_s) {
    const nb::gil_scoped_release release;
    return wait_checking_signals([&](Time latest) { return agent_.wait_change(since, latest); },
                                 deadline_after(timeout_s));
  }

  bool submit(const PlanPoint& planned_from, const CallDescription& call, const InputArray& input,
              const OutputArray& output, const std::vector<Part>& parts, bool start_now, double expected_s) {
    const Submission submission{.call = call,
                                .input = static_cast<const std::byte*>(input.data()),
                                .output = static_cast<std::byte*>(output.data()),
                                .parts = parts,
                                .expected = nanoseconds(expected_s)};
    check_arrays(submission, input.nbytes(), output.nbytes());
    const nb::gil_scoped_release release;
    return agent_.submit(submission, planned_from, start_now);
  }

  void repeat(const CallDescription& call, std::string op, const InputArray& input,
              std::vector<std::vector<Part>> ways, double expected_s, std::size_t changes, std::size_t most) {
    repeat_ = {.call = call,
               .op = std::move(op),
               .type = input.dtype(),
               .ways = std::move(ways),
               .expected = nanoseconds(expected_s),
               .changes = changes,
               .left = most};
  }

  // What makes small calls quick: nothing of Python runs, whose code and data are in no cache of a busy
  // processor. Keeps the GIL until the call has been submitted, so that nobody else makes one meanwhile.
  std::optional<std::int64_t> again(nb::handle x, nb::handle op, nb::handle out) {
    if (repeat_.left == 0) return std::nullopt;
    const char* const name = PyUnicode_Check(op.ptr()) ? PyUnicode_AsUTF8(op.ptr()) : nullptr;
    if (name == nullptr) PyErr_Clear();
    InputArray input;
    OutputArray output;
    // Other arrays, such as those of ctypes, may give their memory without strides, which a cast would read.
    if (name == nullptr || repeat_.op != name || !nb::hasattr(x, "__dlpack__") ||
        !nb::hasattr(out, "__dlpack__") || !nb::try_cast(x, input, false) ||
        !nb::try_cast(out, output, false) || !repeat_.fits(input) || !repeat_.fits(output))
      return std::nullopt;
    const Submission submission{.call = repeat_.call,
                                .input = static_cast<const std::byte*>(input.data()),
                                .output = static_cast<std::byte*>(output.data()),
                                .parts = repeat_.ways[repeat_.made % repeat_.ways.size()],
                                .expected = repeat_.expected};
    if (overlapping(submission)) return std::nullopt;
    const std::uint32_t op_index = agent_.next_op();
    if (!agent_.submit(submission, {.op_index = op_index, .changes = repeat_.changes}, false))
      return std::nullopt;
    ++repeat_.made;
    --repeat_.left;
    Outcome outcome{};
    {
      const nb::gil_scoped_release release;
      outcome = agent_.wait(op_index, EventLoop::now() + kRepeatWait);
    }
    if (outcome == Outcome::kDone && !agent_.failure_of(op_index)) return kComplete;
    unfinished_.push_back({op_index, nb::borrow(x), nb::borrow(out)});
    return op_index;
  }

  std::size_t stop_repeating() {
    std::erase_if(unfinished_, [&](const Unfinished& call) { return agent_.done(call.op_index); });
    repeat_.left = 0;
    return std::exchange(repeat_.made, 0);
  }

  // False: the time is up. A failure is for the caller to ask for.
  bool wait(std::uint32_t op_index, std::optional<double> timeout_s) {
    const nb::gil_scoped_release release;
    return wait_checking_signals([&](Time latest) { return agent_.wait(op_index, latest); },
                                 deadline_after(timeout_s));
  }

 private:
  // An in-network rail, and this rank's place among those that its trees join.
  struct Ina {
    InaRail* trees;
    ComposedRail* composed;
    int rank = 0;
    int world_size = 0;
    std::uint64_t first = 0;  // of the job's ranks among them
  };

  struct Rdma {
    RdmaTransport* transport;
    RingRail* rail;
  };

  struct Repeat {
    CallDescription call{};
    std::string op{};
    nb::dlpack::dtype type{};
    std::vector<std::vector<Part>> ways{};
    Duration expected = 0;
    std::size_t changes = 0;
    std::size_t left = 0;
    std::size_t made = 0;

    template <typename Array>
    bool fits(const Array& array) const {
      return array.size() == call.count && array.dtype() == type;
    }
  };

  struct Unfinished {
    std::uint32_t op_index;
    nb::object input, output;
  };

  static InaGroup group_at(const Ina& ina, const Place& place) {
    const auto& [group, virtual_address, child, slots, lanes] = place;
    return {.group = group,
            .virtual_address = virtual_address,
            .child = child,
            .slots = slots,
            .lanes = lanes,
            .rank = ina.rank,
            .world_size = ina.world_size};
  }

  void check_arrays(const Submission& submission, std::size_t input_bytes, std::size_t output_bytes) const {
    const CallDescription& call = submission.call;
    const auto [reads, writes] = bytes_of(call, agent_.rank(), agent_.world_size());
    if ((reads > 0 && input_bytes != reads) || output_bytes != writes) {
      throw std::invalid_argument("arrays are of " + std::to_string(input_bytes) + " and " +
                                  std::to_string(output_bytes) + " bytes: expected " + std::to_string(reads) +
                                  " and " + std::to_string(writes) + "; pass arrays of these sizes");
    }
    if (overlapping(submission))
      throw std::invalid_argument(
          "out overlaps the input: expected the input itself, this rank's shard of it, or other memory; pass "
          "another out");
  }

  bool overlapping(const Submission& submission) const {
    const auto [reads, writes] = bytes_of(submission.call, agent_.rank(), agent_.world_size());
    const std::byte* from = submission.input;
    const std::byte* to = submission.output;
    if (reads == 0 || from >= to + writes || to >= from + reads) return false;
    // One side may lie in the other where both hold the same: the own shard's place, or all of it.
    const auto rank = static_cast<std::size_t>(agent_.rank());
    return reads > writes ? from + rank * writes != to : to + (writes > reads ? rank * reads : 0) != from;
  }

  // Called without the GIL; takes it for good.
  [[noreturn]] static void raise_timeout(const char* message) {
    const nb::gil_scoped_acquire acquire;
    PyErr_SetString(PyExc_TimeoutError, message);
    throw nb::python_error();
  }

  // Called without the GIL; takes it when it is time to look at signals, whose handlers may raise.
  template <typename Wait>
  bool wait_checking_signals(const Wait& wait, Time latest) {
    for (;;) {
      switch (wait(latest)) {
        case Outcome::kDone:
          return true;
        case Outcome::kTimeout:
          return false;
        case Outcome::kInterrupted:
          const nb::gil_scoped_acquire acquire;
          if (PyErr_CheckSignals() != 0) throw nb::python_error();
      }
    }
  }

  std::map<std::size_t, TcpTransport*> tcp_;  // all owned by the agent's rails
  std::map<std::size_t, BreakingRail*> breaking_;
  std::map<std::size_t, Rdma> rdma_;
  std::map<std::size_t, Ina> ina_;
  InaWorkers workers_;                  // of rails that are attached later
  Repeat repeat_;                       // with the GIL held only, like the next
  std::vector<Unfinished> unfinished_;  // repeated calls that outlived `again`: what rails read and write
  Agent agent_;
};

// A member of the agent as one of Python's.
template <typename R, typename... Args>
auto of_agent(R (Agent::*member)(Args...)) {
  return [member](PythonAgent& self, Args... args) -> R {
    return (self.agent().*member)(std::forward<Args>(args)...);
  };
}
template <typename R, typename... Args>
auto of_agent(R (Agent::*member)(Args...) const) {
  return [member](PythonAgent& self, Args... args) -> R {
    return (self.agent().*member)(std::forward<Args>(args)...);
  };
}

}  // namespace

void bind_agent(nb::module_& m) {
  nb::module_ sub = m.def_submodule("agent", "The agent of a communicator");
  bind_agent_values(sub);
  using Release = nb::call_guard<nb::gil_scoped_release>;
  nb::class_<PythonAgent>(sub, "Agent", "Owns the event loop and the rails of one communicator")
      .def(nb::init<int, int>(), "rank"_a, "world_size"_a)
      .def("set_secret", &PythonAgent::set_secret, "secret"_a,
           "The job's 32 bytes, by which its ranks know each other: once, before rails are attached or "
           "connected. ValueError")
      .def("add_tcp", &PythonAgent::add_tcp, "name"_a, "address"_a, "interface"_a, "rate_bps"_a = 0,
           "peer_timeout_s"_a = kPeerTimeoutS, "mptcp"_a = false, Release(),
           "Open a TCP rail that listens on the address; (rail, port). A peer that gives no sign of life for "
           "peer_timeout_s is gone; 0: never. An empty interface binds to none, as Multipath TCP wants it")
      .def("add_breaking_tcp", &PythonAgent::add_breaking_tcp, "name"_a, "address"_a, "interface"_a,
           "peer_timeout_s"_a = kPeerTimeoutS, Release(), "For tests: a TCP rail that `break_at` breaks")
      .def("break_at", &PythonAgent::break_at, "rail"_a, "where"_a, "times"_a = 1, Release(),
           "The next calls of this function of a breaking rail throw")
      .def("connect_tcp", &PythonAgent::connect_tcp, "rail"_a, "members"_a, "timeout_s"_a, Release(),
           "Connect a tcp rail, or the control of an ina rail, to all ranks' (address, port); the ranks "
           "still missing at "
           "the end")
      .def("last_refusal", &PythonAgent::last_refusal, "rail"_a, Release(),
           "Why the last dial of a tcp rail, or of the control of an ina rail, failed; '' if none did")
      .def(
          "add_rdma", &PythonAgent::add_rdma, "name"_a, "address"_a, "interface"_a, "rate_bps"_a = 0,
          "peer_timeout_s"_a = kPeerTimeoutS, "sums"_a = false, "place"_a = RdmaPlace::kUserSpace,
          "traffic_class"_a = 0, Release(),
          "Open an RDMA rail on the interface of this address; (rail, queue pair number for each rank). With "
          "`sums` it offers connections that a switch may add up")
      .def("rdma_place", &PythonAgent::rdma_place, "rail"_a,
           "Whether an RDMA rail is on a device, and in words: on which, or why on none")
      .def("sum_numbers", &PythonAgent::sum_numbers, "rail"_a,
           "What an RDMA rail offers for sums: (out, into, alias)")
      .def("sum_rdma", &PythonAgent::sum_rdma, "rail"_a, "members"_a, "window_packets"_a, Release(),
           "A switch adds up the connections of all ranks' (out, into, alias): before connect_rdma")
      .def("connect_rdma", &PythonAgent::connect_rdma, "rail"_a, "members"_a,
           "devices"_a = std::vector<std::size_t>{}, Release(),
           "Join with all ranks' (address, MAC, queue pair numbers); `devices`: the ranks on a device")
      .def("add_ina", &PythonAgent::add_ina, "name"_a, "address"_a, "interface"_a, "rate_bps"_a = 0,
           Release(), "Open an in-network rail on the address; (rail, UDP port)")
      .def("attach_ina", &PythonAgent::attach_ina, "rail"_a, "places"_a, "members"_a, "roots"_a = 0,
           "redo"_a = false, Release(),
           "Take the rail's places in its aggregation trees: (group, virtual address, child, slots, lanes), "
           "in the order that all ranks share; `members`: all ranks' (address, port) on the rail, or none if "
           "nothing is to be multicast; `roots`: how many of them multicast at once in an allgather, 0: all; "
           "`redo`: "
           "whether somebody moves a tree that has a wrong sum (`Stall.spoilt`), else the rail fails")
      .def("compose_ina", &PythonAgent::compose_ina, "rail"_a, "members"_a, "lanes"_a, Release(),
           "Form a ring of members, each a list of ranks: racks, whose places `attach_ina` takes, in which "
           "ranks "
           "count from 0 in this order, and single ranks, which have none; the ranks of the own one. "
           "Before `connect_tcp`. ValueError")
      .def("pause_ina", &PythonAgent::pause_ina, "rail"_a, "group"_a, Release(),
           "Stop the tree of this group; the lowest chunk without a result since it was formed")
      .def("resume_ina", &PythonAgent::resume_ina, "rail"_a, "group"_a, "place"_a, "resume_from"_a, Release(),
           "The tree of the paused group goes on at another place from that chunk. ValueError if it cannot")
      .def(
          "set_spin", &PythonAgent::set_spin, "seconds"_a,
          "How long whoever waits for a small call looks for its end before it sleeps; before the first call")
      .def("progress_on", &PythonAgent::progress_on, "cpus"_a, Release(),
           "From now on a thread of the agent's own does all the work of calls, on these CPUs alone, and "
           "spins as set; whoever waits sleeps. With several CPUs the trees of an ina rail that is attached "
           "later get threads beside it, one CPU each. ValueError for CPUs that this process may not use")
      .def("open_control", of_agent(&Agent::open_control), "rail"_a, Release(),
           "Open what recovery needs on a rail, rail by rail; the port to offer, of UDP (control) and TCP "
           "(repair)")
      .def("enable_recovery", &PythonAgent::enable_recovery, "members"_a, "rates_bps"_a,
           "peer_timeout_s"_a = kPeerTimeoutS, "most_kept_bytes"_a = kMostKeptBytes, Release(),
           "From now on rails may die and come back. `members`: all ranks' (address, control port), by rail "
           "and rank. `rates_bps`, by rail, the same on all ranks, 0 if unknown: how repairs are spread. "
           "Once, after all rails are connected and before the first call. "
           "A call waits while earlier calls, without the largest of them, keep `most_kept_bytes` for other "
           "ranks")
      .def("forgo_recovery", of_agent(&Agent::forgo_recovery), Release(),
           "Recovery will not be enabled: a rail that fails, or has failed, ends the communicator")
      .def("plan_point", &PythonAgent::plan_point, "timeout_s"_a = nb::none(),
           "(op index of the next call, number of changes known), to plan it by. Waits while the ranks agree "
           "on which rails live, and for earlier calls' memory. TimeoutError")
      .def("changes", of_agent(&Agent::changes), "since"_a = 0,
           "The changes after the first `since`, in order. Forgets the first `since`")
      .def("wait_change", &PythonAgent::wait_change, "since"_a, "timeout_s"_a = nb::none(),
           "Wait until there are more than so many changes or everything has ended; False if the time is up")
      .def("set_obstacle", of_agent(&Agent::set_obstacle), "rail"_a, "text"_a, Release(),
           "Something stands in the way of a rail on this rank, until it is cleared by ''")
      .def("suspect", of_agent(&Agent::suspect), "rail"_a, "reason"_a, Release(),
           "A rail cannot go on by itself: with recovery, it is excluded until it has been restarted")
      .def("rail_states", of_agent(&Agent::rail_states), Release(), "RailState of every rail")
      .def("submit", &PythonAgent::submit, "planned_from"_a, "call"_a, "input"_a, "output"_a, "parts"_a,
           "start_now"_a = true, "expected_s"_a = 0.0,
           "Start the next call, planned from (op index, number of changes known), over parts (rail, offset, "
           "count), in elements (of a shard for reduce_scatter and all_gather). Keep both arrays alive until "
           "it is done. Without start_now it starts with the first wait. A rail that takes much longer than "
           "expected_s (0: unknown) counts as dead. False if the ranks have agreed on other rails since, or "
           "a plan point would have to be waited for: take that")
      .def("repeat", &PythonAgent::repeat, "call"_a, "op"_a, "input"_a, "ways"_a, "expected_s"_a, "changes"_a,
           "most"_a,
           "The next `most` calls, if they are all_reduces like this one of `input`, may be made by `again`, "
           "each over the parts of the next one of `ways`, while so many changes are known. `op`: the "
           "operation's name")
      .def(
          "again", &PythonAgent::again, "x"_a.none(), "op"_a.none(), "out"_a.none(),
          "Make the next call if it is like the one to repeat, and wait for it. None: it is not, nothing has "
          "been done. -1: it is complete. Else its op index: it has failed, or has yet to be waited for")
      .def("stop_repeating", &PythonAgent::stop_repeating,
           "End what `repeat` allows; how many calls have been made by it")
      .def("next_op", of_agent(&Agent::next_op), "The next call's op index")
      .def("wait", &PythonAgent::wait, "op_index"_a, "timeout_s"_a = nb::none(),
           "Wait until the call is done or has failed; False if the time is up")
      .def("done", of_agent(&Agent::done), "op_index"_a)
      .def("lagging", of_agent(&Agent::lagging), "op_index"_a,
           "The rails whose parts of a pending call are not complete")
      .def("failure_of", of_agent(&Agent::failure_of), "op_index"_a,
           "Why this call failed; None if it is done or pending")
      .def("failure", of_agent(&Agent::failure), "Why the communicator has ended, if so")
      .def("fail", of_agent(&Agent::fail), "failure"_a, Release(),
           "End the communicator with this failure, here and, where a rail can notify them, on the peers")
      .def(
          "close", [](PythonAgent& self, double linger_s) { self.agent().close(nanoseconds(linger_s)); },
          "linger_s"_a = 0.5, Release(), "Say goodbye and stop")
      .def("stats", of_agent(&Agent::stats), Release(), "RailStats of every rail")
      .def("groups", of_agent(&Agent::groups), Release(), "GroupStats of every rail's trees")
      .def(
          "next_stall",
          [](PythonAgent& self, double timeout_s) {
            return self.agent().next_stall(deadline_after(timeout_s));
          },
          "timeout_s"_a, Release(),
          "(rail, Stall): wait for the next one; None after the timeout, or when the agent is closed")
      .def(
          "drain_records", [](PythonAgent& self) { return self.agent().drain_records(Records::kUser); },
          "The slices that have ended since the last call")
      .def(
          "drain_measurements",
          [](PythonAgent& self) { return slice_rows(self.agent().drain_records(Records::kStriper)); },
          "The same for the striper, whatever others have drained: of each its op index, rail, start and end "
          "in ns, and bytes");
}

}  // namespace railweave
