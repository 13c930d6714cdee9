// SPDX-License-Identifier: Apache-2.0
// railweave._rigs.rails.Rails: one rail of every rank, on real sockets, driven by the calling thread; for
// tests of rails without an agent above them.
#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/string_view.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/vector.h>

#include <algorithm>
#include <deque>
#include <map>
#include <memory>
#include <stdexcept>
#include <string>
#include <tuple>
#include <variant>
#include <vector>

#include "bindings/agent_values.hpp"
#include "rails/datagram_socket.hpp"
#include "rails/ina_rail.hpp"
#include "rails/rdma_transport.hpp"
#include "rails/ring_rail.hpp"
#include "rails/tcp_reader.hpp"
#include "rails/tcp_transport.hpp"
#include "rigs/arrays.hpp"
#include "rigs/rig.hpp"

namespace nb = nanobind;
using namespace nb::literals;

namespace railweave {
namespace {

/// No heartbeats: the outcome of a test does not depend on its duration.
constexpr Liveness kNoBeats{.timeout = 0, .interval = 0};

class RankRails final {
 public:
  explicit RankRails(int world_size)
      : world_size_(world_size), hosts_(static_cast<std::size_t>(world_size)) {}
  ~RankRails() {
    for (const Host& host : hosts_)
      if (host.rail) loop_.remove_timed(*host.rail);
  }

  std::uint16_t open_tcp(std::size_t rank, std::string address, std::uint16_t port, double beat_s,
                         std::string interface) {
    const auto beat = nanoseconds(beat_s);
    auto transport = std::make_unique<TcpTransport>(
        loop_,
        TcpTransportOptions{.local = {.address = std::move(address), .interface = std::move(interface)},
                            .port = port,
                            .liveness = {.timeout = 4 * beat, .interval = beat}});
    hosts_.at(rank).tcp = transport.get();
    adopt(rank, std::make_unique<RingRail>(&loop_, std::move(transport), hosts_[rank], RingRailOptions{}));
    return hosts_[rank].tcp->port();
  }

  std::pair<std::string, std::vector<std::uint32_t>> open_rdma(std::size_t rank, std::string interface,
                                                               std::string address) {
    const RdmaTransportOptions options{
        .interface = std::move(interface), .address = std::move(address), .liveness = kNoBeats};
    auto transport = std::make_unique<RdmaTransport>(loop_, options, static_cast<int>(rank), world_size_);
    RdmaTransport& made = *transport;
    hosts_.at(rank).rdma = transport.get();
    adopt(rank, std::make_unique<RingRail>(&loop_, std::move(transport), hosts_[rank], RingRailOptions{}));
    return {made.mac(), made.queue_pairs()};
  }

  std::uint16_t open_ina(std::size_t rank, const std::string& address, const std::string& interface,
                         std::uint64_t rate_bps, bool yields) {
    Host& host = hosts_.at(rank);
    auto rail = std::make_unique<InaRail>(
        loop_, InaRailOptions{.address = address, .interface = interface, .rate_bps = rate_bps}, host);
    if (yields) rail->yield();
    host.ina = rail.get();
    host.tcp = &rail->control();
    adopt(rank, std::move(rail));
    return host.tcp->port();
  }

  void attach(std::size_t rank, const std::vector<std::tuple<std::uint16_t, std::string>>& trees,
              std::uint32_t slots, std::uint32_t lanes, std::vector<int> cpus) {
    std::vector<InaGroup> groups;
    for (const auto& [group, address] : trees)
      groups.push_back({.group = group,
                        .virtual_address = address,
                        .child = static_cast<std::uint8_t>(rank),
                        .slots = slots,
                        .lanes = lanes,
                        .rank = static_cast<int>(rank),
                        .world_size = world_size_});
    hosts_.at(rank).ina->attach(groups, {}, 0, {.cpus = std::move(cpus)});
  }

  void introduce(std::size_t rank, const nb::bytes& secret, const std::vector<SocketAddress>& members) {
    hosts_.at(rank).tcp->introduce(derive_key(secret_of(secret), "tcp"), static_cast<int>(rank), members);
  }
  void connect_tcp(std::size_t rank, const nb::bytes& secret, const std::vector<SocketAddress>& members) {
    hosts_.at(rank).tcp->connect(derive_key(secret_of(secret), "tcp"), static_cast<int>(rank), members,
                                 EventLoop::now());
  }
  void connect_rdma(std::size_t rank, const nb::bytes& secret, const std::vector<RdmaMember>& members) {
    hosts_.at(rank).rdma->connect(derive_key(secret_of(secret), "rdma"), members, EventLoop::now());
  }

  void start(std::size_t rank, std::uint64_t id, std::uint32_t op_index, ConstArray input, Array output,
             std::string_view op, std::uint16_t part) {
    check_alike(input, output);
    Host& host = hosts_.at(rank);
    host.held.emplace(id, std::pair(input, output));
    host.waiting.push_back({.id = id,
                            .call = {.op_index = op_index,
                                     .collective = Collective::kAllReduce,
                                     .dtype = dtype_of(input),
                                     .op = op_of(op),
                                     .root = 0,
                                     .count = input.size()},
                            .input = bytes_of(input),
                            .output = bytes_of(output),
                            .count = input.size(),
                            .stride = 0,
                            .rank = static_cast<int>(rank),
                            .world_size = world_size_,
                            .part = part});
    host.start(EventLoop::now());
  }

  /// Drops the slices and their arrays.
  void halt(std::size_t rank) {
    rail(rank).halt(EventLoop::now());
    hosts_[rank].waiting.clear();
    hosts_[rank].held.clear();
    hosts_[rank].halt_at_next = false;
  }
  void restart(std::size_t rank, std::uint32_t incarnation, std::vector<std::uint64_t> bases) {
    rail(rank).restart({.incarnation = incarnation, .bases = std::move(bases)}, EventLoop::now());
  }
  Rail& rail(std::size_t rank) { return *hosts_.at(rank).rail; }

  /// Halts the rail inside its next report.
  void halt_at_next(std::size_t rank) { hosts_.at(rank).halt_at_next = true; }

  void turn(double longest_s) {
    const nb::gil_scoped_release release;
    loop_.run_once(EventLoop::now() + nanoseconds(longest_s));
  }

  std::vector<std::uint64_t> done(std::size_t rank) const { return hosts_.at(rank).done; }
  std::vector<Failure> failures(std::size_t rank) const { return hosts_.at(rank).failures; }
  RailStats stats(std::size_t rank) { return rail(rank).stats(); }

 private:
  // A rank's rail and its reports.
  struct Host final : RailListener {
    std::unique_ptr<Rail> rail;
    TcpTransport* tcp = nullptr;
    RdmaTransport* rdma = nullptr;
    InaRail* ina = nullptr;
    std::map<std::uint64_t, std::pair<ConstArray, Array>> held;
    std::deque<Slice> waiting;
    std::vector<std::uint64_t> done;
    std::vector<Failure> failures;
    bool halt_at_next = false;

    void start(Time now) {
      while (!waiting.empty() && rail->can_start()) {
        const Slice slice = waiting.front();
        waiting.pop_front();
        rail->start(slice, now);
      }
    }
    void slice_done(std::uint64_t id, Time now) override {
      done.push_back(id);
      reported(now);
      start(now);
    }
    void rail_failed(const Failure& failure, Time now) override {
      failures.push_back(failure);
      reported(now);
    }
    void reported(Time now) {
      if (!std::exchange(halt_at_next, false)) return;
      rail->halt(now);
      waiting.clear();
    }
  };

  void adopt(std::size_t rank, std::unique_ptr<Rail> rail) {
    loop_.add_timed(*rail);
    hosts_[rank].rail = std::move(rail);
  }

  const int world_size_;
  EventLoop loop_;
  std::vector<Host> hosts_;
};

/// The socket of the in-network rail.
struct Datagrams : DatagramSocket {
  explicit Datagrams(std::string address)
      : DatagramSocket({.address = std::move(address), .interface = {}}, 0) {}

  std::size_t send(const std::vector<nb::bytes>& datagrams) {
    std::vector<Bytes> views;
    for (const nb::bytes& each : datagrams) views.push_back(view(each));
    return DatagramSocket::send(views);
  }
};

/// A reader with its own memory for messages.
class StreamReader {
 public:
  explicit StreamReader(const nb::bytes& key) : reader_(key_from(key)) {}

  /// Stops at a message until `place` is called.
  nb::list feed(const nb::bytes& bytes) {
    nb::list events;
    for (Bytes rest = view(bytes); !rest.empty();) {
      std::size_t size = 0;
      for (const MutableBytes room : reader_.room()) {
        const std::size_t part = std::min(room.size(), rest.size() - size);
        std::copy_n(rest.begin() + size, part, room.begin());
        size += part;
      }
      if (size == 0) throw std::length_error("a message waits for its place");
      reader_.filled(size);
      rest = rest.subspan(size);
      take(events);
    }
    return events;
  }
  nb::list place(bool wanted) {
    message_.assign(wanted ? size_ : 0, std::byte{});
    reader_.place(message_);
    nb::list events;
    take(events);
    return events;
  }
  void discard() {
    reader_.discard();
    message_.clear();
  }

 private:
  void take(nb::list& events) {
    while (const auto event = reader_.next()) {
      if (const auto* begins = std::get_if<TcpReader::MessageBegins>(&*event)) {
        size_ = begins->size;
        events.append(nb::make_tuple("begins", describe(begins->label), size_));
        return;
      }
      if (std::holds_alternative<TcpReader::MessageEnds>(*event)) {
        events.append(nb::make_tuple("ends", to_python(message_)));
      } else if (const auto* heartbeat = std::get_if<TcpReader::Heartbeat>(&*event)) {
        events.append(nb::make_tuple("heartbeat", describe(heartbeat->awaited)));
      } else if (const auto* failed = std::get_if<TcpReader::PeerFailed>(&*event)) {
        events.append(nb::make_tuple("failed", failed->failure ? failed->failure->message : ""));
      } else if (std::holds_alternative<TcpReader::Goodbye>(*event)) {
        events.append(nb::make_tuple("goodbye"));
      } else {
        events.append(nb::make_tuple("malformed"));
        return;
      }
    }
  }

  TcpReader reader_;
  std::size_t size_ = 0;
  std::vector<std::byte> message_;
};

}  // namespace

void bind_rails(nb::module_& m) {
  nb::module_ sub = rig_submodule(m, "rails", "Rails without an agent, for tests");
  nb::class_<RankRails>(sub, "Rails", "One rail of each rank, all on one event loop")
      .def(nb::init<int>(), "world_size"_a)
      .def("open_tcp", &RankRails::open_tcp, "rank"_a, "address"_a, "port"_a = 0, "beat_s"_a = 0.0,
           "interface"_a = "", "Listen; the port")
      .def("open_rdma", &RankRails::open_rdma, "rank"_a, "interface"_a, "address"_a,
           "Open; (MAC, queue pair number for each rank)")
      .def("open_ina", &RankRails::open_ina, "rank"_a, "address"_a, "interface"_a = "", "rate_bps"_a = 0,
           "yields"_a = false, "Open an in-network rail with its control; the control's port")
      .def("attach", &RankRails::attach, "rank"_a, "trees"_a, "slots"_a, "lanes"_a,
           "cpus"_a = std::vector<int>{},
           "The trees of an in-network rail: (group, virtual address), and the CPUs of its workers. Children "
           "are numbered by rank")
      .def("introduce", &RankRails::introduce, "rank"_a, "secret"_a, "members"_a,
           "Say who takes part, without connections: `restart` makes them")
      .def("connect_tcp", &RankRails::connect_tcp, "rank"_a, "secret"_a, "members"_a)
      .def("connect_rdma", &RankRails::connect_rdma, "rank"_a, "secret"_a, "members"_a)
      .def("start", &RankRails::start, "rank"_a, "id"_a, "op_index"_a, "input"_a, "output"_a, "op"_a = "sum",
           "part"_a = 0, "Begin an all-reduce, of which this is the slice `part`")
      .def("halt", &RankRails::halt, "rank"_a)
      .def("halt_at_next", &RankRails::halt_at_next, "rank"_a,
           "Halt from inside the next report, as an agent might")
      .def("restart", &RankRails::restart, "rank"_a, "incarnation"_a,
           "bases"_a = std::vector<std::uint64_t>{})
      .def(
          "ready", [](RankRails& self, std::size_t rank) { return self.rail(rank).ready(); }, "rank"_a)
      .def(
          "next_chunks", [](RankRails& self, std::size_t rank) { return self.rail(rank).next_chunks(); },
          "rank"_a)
      .def(
          "close", [](RankRails& self, std::size_t rank) { self.rail(rank).close(EventLoop::now()); },
          "rank"_a)
      .def("turn", &RankRails::turn, "longest_s"_a, "Wait for something to happen, and handle it")
      .def("done", &RankRails::done, "rank"_a, "The slices completed, in order")
      .def("failures", &RankRails::failures, "rank"_a)
      .def("stats", &RankRails::stats, "rank"_a);
  nb::class_<StreamReader>(sub, "StreamReader", "What a peer's TCP stream says, as a list of events")
      .def(nb::init<const nb::bytes&>(), "key"_a)
      .def("feed", &StreamReader::feed, "bytes"_a,
           "The events up to a message that begins; ValueError if one waits and its bytes have no room")
      .def("place", &StreamReader::place, "wanted"_a,
           "Take or throw away the message that begins; what follows")
      .def("discard", &StreamReader::discard, "Throw away the rest of the message that comes in");
  nb::class_<Datagrams>(sub, "Datagrams", "A UDP socket as the in-network rail has it, on a port of its own")
      .def(nb::init<std::string>(), "address"_a)
      .def("set_remotes", &Datagrams::set_remotes, "remotes"_a)
      .def("set_super_packets", &Datagrams::set_super_packets, "bytes"_a)
      .def("send", &Datagrams::send, "datagrams"_a, "To the first remote; how many are gone")
      .def_prop_ro("stats", &Datagrams::stats);
}

}  // namespace railweave
