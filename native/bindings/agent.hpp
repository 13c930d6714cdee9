// SPDX-License-Identifier: Apache-2.0
// The agent as Python sees it.
#pragma once

#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/vector.h>

#include <map>
#include <tuple>

#include "agent/agent.hpp"
#include "bindings/agent_values.hpp"
#include "rails/endpoint_rail.hpp"
#include "rails/ina_rail.hpp"
#include "rails/rdma_transport.hpp"
#include "rails/ring_rail.hpp"
#include "rails/sum_all_reduce.hpp"
#include "rails/tcp_transport.hpp"

namespace railweave {

inline constexpr double kPeerTimeoutS = 5;
inline constexpr std::int64_t kComplete = -1;
inline constexpr std::size_t kMostKeptBytes = std::size_t{256} << 20;
inline constexpr Duration kRepeatWait = 100 * kMillisecond;  // longer calls wait where signals are checked

inline Liveness liveness(double peer_timeout_s) {
  const auto timeout = nanoseconds(peer_timeout_s);
  const Duration interval = Liveness{}.interval;
  return {.timeout = timeout, .interval = timeout > 0 ? std::min(interval, timeout / 4) : interval};
}

inline Time deadline_after(std::optional<double> seconds) {
  if (!seconds || *seconds >= 1e9) return kNever;
  return EventLoop::now() + nanoseconds(std::max(0.0, *seconds));
}

// Python's view of an agent. It remembers each rail's transport, because transports connect later.
class PythonAgent {
 public:
  using InputArray = nanobind::ndarray<nanobind::ro, nanobind::c_contig, nanobind::device::cpu>;
  using OutputArray = nanobind::ndarray<nanobind::c_contig, nanobind::device::cpu>;
  // group, virtual address, child, slots, lanes
  using Place = std::tuple<std::uint16_t, std::string, std::uint8_t, std::uint32_t, std::uint32_t>;

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
          return std::make_unique<RingRail>(&loop, std::move(made), listener,
                                            RingRailOptions{.rate_bps = rate_bps});
        });
    tcp_[index] = transport;
    return {index, transport->port()};
  }

  void set_secret(const nanobind::bytes& secret) { agent_.set_secret(secret_of(secret)); }

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
          auto rail = make_rdma_rail(loop, std::move(made), listener, rate_bps);
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

  // Returns at once. The rank that is ready first repeats its attempts.
  void connect_rdma(std::size_t rail, std::vector<RdmaMember> members,
                    const std::vector<std::size_t>& devices) {
    for (const std::size_t rank : devices) members.at(rank).device = true;
    const Key key = derive_key(agent_.secret(), "rdma", rail);
    agent_.on_rail(rail, [&] { rdma_.at(rail).transport->connect(key, members, EventLoop::now()); });
  }

  std::pair<std::size_t, std::uint16_t> add_ina(std::string name, std::string address, std::string interface,
                                                std::uint64_t rate_bps) {
    const InaRailOptions options{.address = address, .interface = interface, .rate_bps = rate_bps};
    InaRail* rail = nullptr;
    const std::size_t index = agent_.add_rail(
        std::move(name), {address, interface}, rate_bps, [&](EventLoop& loop, RailListener& listener) {
          auto made = std::make_unique<InaRail>(loop, options, listener);
          rail = made.get();
          return made;
        });
    ina_[index] = {.rail = rail, .rank = agent_.rank(), .world_size = agent_.world_size()};
    tcp_[index] = &rail->control();
    return {index, rail->port()};
  }

  void attach_ina(std::size_t rail, const std::vector<Place>& places,
                  const std::vector<SocketAddress>& members, int roots, bool redo) {
    const Ina& ina = ina_.at(rail);
    std::vector<InaGroup> groups;
    for (const Place& place : places) groups.push_back(group_at(ina, place));
    const InaProof proof{.secret = agent_.secret(),
                         .place = std::uint64_t{rail} << 16 | ina.first,
                         .redo_within = redo ? timing::kRedoTime : 0};
    agent_.on_rail(rail, [&] { ina.rail->attach(groups, members, roots, workers_, proof); });
  }

  // Returns the ranks of this rank's member.
  std::vector<int> compose_ina(std::size_t rail, std::vector<std::vector<int>> members, std::uint32_t lanes) {
    Ina& ina = ina_.at(rail);
    const MemberRing ring(std::move(members), agent_.rank(), agent_.world_size());
    ina.rank = ring.place();
    ina.world_size = static_cast<int>(ring.rack().size());
    ina.first = static_cast<std::uint64_t>(ring.rack().front());
    agent_.on_rail(rail, [&] { ina.rail->compose(ring, lanes); });
    return ring.rack();
  }

  std::size_t add_algorithm(std::string name, std::string address, std::string interface,
                            std::uint64_t rate_bps) {
    EndpointRail* rail = nullptr;
    const std::size_t index = agent_.add_rail(std::move(name), {address, interface}, rate_bps,
                                              [&](EventLoop& loop, RailListener& listener) {
                                                auto made = std::make_unique<EndpointRail>(loop, listener);
                                                rail = made.get();
                                                return made;
                                              });
    endpoint_[index] = rail;
    return index;
  }

  EndpointRail& endpoint(std::size_t rail) { return *endpoint_.at(rail); }

  std::uint64_t pause_ina(std::size_t rail, std::uint16_t group) {
    std::uint64_t position = 0;
    agent_.on_rail(rail, [&] { position = ina_.at(rail).rail->pause(group, EventLoop::now()); });
    return position;
  }

  void resume_ina(std::size_t rail, std::uint16_t group, const Place& place, std::uint64_t resume_from) {
    const Ina& ina = ina_.at(rail);
    agent_.on_rail(rail,
                   [&] { ina.rail->resume(group, group_at(ina, place), resume_from, EventLoop::now()); });
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
    const nanobind::gil_scoped_release release;
    if (!wait_checking_signals([&](Time latest) { return agent_.plan_point(point, latest); },
                               deadline_after(timeout_s)))
      raise_timeout(
          "the ranks have not agreed on the rails that are up, or completed earlier calls, in time");
    return point;
  }

  bool wait_change(std::size_t since, std::optional<double> timeout_s) {
    const nanobind::gil_scoped_release release;
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
    const nanobind::gil_scoped_release release;
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

  // Small calls are fast because no Python code runs: on a busy processor no cache holds its code and data.
  // Keeps the GIL until the call is submitted, so calls of other threads come later.
  std::optional<std::int64_t> again(nanobind::handle x, nanobind::handle op, nanobind::handle out) {
    if (repeat_.left == 0) return std::nullopt;
    const char* const name = PyUnicode_Check(op.ptr()) ? PyUnicode_AsUTF8(op.ptr()) : nullptr;
    if (name == nullptr) PyErr_Clear();
    InputArray input;
    OutputArray output;
    // Other arrays, such as those of ctypes, may give their memory without strides, which a cast would read.
    if (name == nullptr || repeat_.op != name || !nanobind::hasattr(x, "__dlpack__") ||
        !nanobind::hasattr(out, "__dlpack__") || !nanobind::try_cast(x, input, false) ||
        !nanobind::try_cast(out, output, false) || !repeat_.fits(input) || !repeat_.fits(output))
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
      const nanobind::gil_scoped_release release;
      outcome = agent_.wait(op_index, EventLoop::now() + kRepeatWait);
    }
    if (outcome == Outcome::kDone && !agent_.failure_of(op_index)) return kComplete;
    unfinished_.push_back({op_index, nanobind::borrow(x), nanobind::borrow(out)});
    return op_index;
  }

  std::size_t stop_repeating() {
    std::erase_if(unfinished_, [&](const Unfinished& call) { return agent_.done(call.op_index); });
    repeat_.left = 0;
    return std::exchange(repeat_.made, 0);
  }

  // Returns false at the time limit. The caller must check for a failure.
  bool wait(std::uint32_t op_index, std::optional<double> timeout_s) {
    const nanobind::gil_scoped_release release;
    return wait_checking_signals([&](Time latest) { return agent_.wait(op_index, latest); },
                                 deadline_after(timeout_s));
  }

 protected:
  // By rail. The agent's rails own the transports.
  std::map<std::size_t, TcpTransport*> tcp_;

 private:
  // An in-network rail, and this rank's place among the members of its trees.
  struct Ina {
    InaRail* rail;
    int rank = 0;
    int world_size = 0;
    std::uint64_t first = 0;  // first of the job's ranks in this rack
  };

  struct Rdma {
    RdmaTransport* transport;
    RingRail* rail;
  };

  struct Repeat {
    CallDescription call{};
    std::string op{};
    nanobind::dlpack::dtype type{};
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
    nanobind::object input, output;
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
    // Input and output may share memory if both hold the same data: the own shard, or everything.
    const auto rank = static_cast<std::size_t>(agent_.rank());
    return reads > writes ? from + rank * writes != to : to + (writes > reads ? rank * reads : 0) != from;
  }

  // Called without the GIL; takes it and keeps it.
  [[noreturn]] static void raise_timeout(const char* message) {
    const nanobind::gil_scoped_acquire acquire;
    PyErr_SetString(PyExc_TimeoutError, message);
    throw nanobind::python_error();
  }

  // Called without the GIL. Takes the GIL to check signals, whose handlers may raise.
  template <typename Wait>
  bool wait_checking_signals(const Wait& wait, Time latest) {
    for (;;) {
      switch (wait(latest)) {
        case Outcome::kDone:
          return true;
        case Outcome::kTimeout:
          return false;
        case Outcome::kInterrupted:
          const nanobind::gil_scoped_acquire acquire;
          if (PyErr_CheckSignals() != 0) throw nanobind::python_error();
      }
    }
  }

  std::map<std::size_t, Rdma> rdma_;
  std::map<std::size_t, Ina> ina_;
  std::map<std::size_t, EndpointRail*> endpoint_;
  InaWorkers workers_;                  // for rails that are attached later
  Repeat repeat_;                       // guarded by the GIL, like unfinished_
  std::vector<Unfinished> unfinished_;  // arrays of repeated calls that outlived `again`
  Agent agent_;
};

}  // namespace railweave
