// SPDX-License-Identifier: Apache-2.0
// What hosts and aggregating switches do in an allreduce, on links, queues, IP and TCP of ns-3.
//
// A plane is racks of hosts below one spine. Switches forward IP. Rings are messages over ns-3's TCP. What a
// switch adds are UDP datagrams to its address: the first 16 bytes are the header, as on the wire.
// No element is added: what is simulated is who waits for whose packet. UDP must not lose any: it is not sent
// again.
#pragma once

#include <algorithm>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <numeric>
#include <stdexcept>
#include <string>
#include <unordered_map>
#include <vector>

#include "ns3/core-module.h"
#include "ns3/internet-module.h"
#include "ns3/network-module.h"
#include "ns3/point-to-point-module.h"
#include "ns3/traffic-control-module.h"

namespace railweave_simulation {

using Done = std::function<void(std::uint32_t)>;  // at a host

constexpr std::uint16_t kPort = 5257;
constexpr std::uint32_t kHeader = 16;   // bytes
constexpr std::uint32_t kWindow = 256;  // chunks that a host has in flight
constexpr std::uint8_t kBehind = 0x08;  // type of service that leaves after other traffic

struct Fabric {
  std::uint32_t racks, hosts;      // hosts per rack
  std::uint32_t mtu, chunk_bytes;  // that a switch adds at once
  double rate_bps, delay_s;        // of each link
  double message_s;                // that a host takes to go on after a message
  std::uint32_t
      burst_bytes;  // 0: packets leave at the link's rate; else ports are token buckets, as in the lab
};

enum class Kind : std::uint16_t { kContribution, kPartial, kResult, kSpread };

struct Chunk {  // the header
  std::uint32_t task, number;
  Kind kind;
  std::uint16_t place;  // of the sender in its rack, or of the rack
  std::uint32_t bytes;  // behind the header
};
static_assert(sizeof(Chunk) == kHeader);

// Messages from one host to another over a TCP connection, in order.
class Stream {
 public:
  Stream(ns3::Ptr<ns3::Node> from, ns3::Ptr<ns3::Node> to, ns3::Ipv4Address address, std::uint16_t port) {
    const auto tcp = ns3::TcpSocketFactory::GetTypeId();
    listener_ = ns3::Socket::CreateSocket(to, tcp);
    listener_->Bind(ns3::InetSocketAddress(ns3::Ipv4Address::GetAny(), port));
    listener_->Listen();
    listener_->SetAcceptCallback(ns3::MakeNullCallback<bool, ns3::Ptr<ns3::Socket>, const ns3::Address&>(),
                                 ns3::MakeCallback(&Stream::accept, this));
    sender_ = ns3::Socket::CreateSocket(from, tcp);
    sender_->Bind();
    sender_->Connect(ns3::InetSocketAddress(address, port));
    sender_->SetSendCallback(ns3::MakeCallback(&Stream::writable, this));
  }

  void send(std::uint64_t bytes, std::function<void()> arrived) {
    messages_.push_back({bytes, std::move(arrived)});
    unsent_ += bytes;
    fill();
  }

 private:
  struct Message {
    std::uint64_t left;
    std::function<void()> arrived;
  };

  void accept(ns3::Ptr<ns3::Socket> socket, const ns3::Address&) {
    socket->SetRecvCallback(ns3::MakeCallback(&Stream::read, this));
    receiver_ = socket;
  }
  void writable(ns3::Ptr<ns3::Socket>, std::uint32_t) { fill(); }
  void fill() {
    while (unsent_ > 0) {
      const auto room = std::min<std::uint64_t>(unsent_, sender_->GetTxAvailable());
      if (room == 0) return;
      const int sent = sender_->Send(ns3::Create<ns3::Packet>(static_cast<std::uint32_t>(room)));
      if (sent <= 0) return;
      unsent_ -= static_cast<std::uint64_t>(sent);
    }
  }
  void read(ns3::Ptr<ns3::Socket> socket) {
    while (auto packet = socket->Recv()) arrived_ += packet->GetSize();
    while (!messages_.empty() && arrived_ >= messages_.front().left) {
      arrived_ -= messages_.front().left;
      const auto arrived = std::move(messages_.front().arrived);
      messages_.pop_front();
      arrived();
    }
  }

  ns3::Ptr<ns3::Socket> listener_, sender_, receiver_;
  std::deque<Message> messages_;
  std::uint64_t unsent_ = 0, arrived_ = 0;
};

// Adds and spreads for its hosts, or, as the spine, for its leaves.
class Switch {
 public:
  Switch(ns3::Ptr<ns3::Node> node, ns3::Ipv4Address parent, std::uint16_t place, std::uint32_t chunk_bytes)
      : parent_(parent), place_(place), chunk_bytes_(chunk_bytes) {
    socket_ = ns3::Socket::CreateSocket(node, ns3::UdpSocketFactory::GetTypeId());
    socket_->Bind(ns3::InetSocketAddress(ns3::Ipv4Address::GetAny(), kPort));
    socket_->SetIpTos(kBehind);
    socket_->SetRecvCallback(ns3::MakeCallback(&Switch::read, this));
  }
  void add_child(ns3::Ipv4Address address) { children_.push_back(address); }
  // Of a reduce-scatter: each result is for one child, of the others only the header. A sum goes to the
  // parent first if there is one.
  void add(std::uint32_t task, bool scatter, bool up) { tasks_[task] = {scatter, up, {}}; }

 private:
  struct Task {
    bool scatter, up;
    std::map<std::uint32_t, std::uint32_t> counts;  // contributions, by chunk in flight
  };

  void read(ns3::Ptr<ns3::Socket> socket) {
    while (auto packet = socket->Recv()) {
      Chunk chunk;
      packet->CopyData(reinterpret_cast<std::uint8_t*>(&chunk), kHeader);
      switch (chunk.kind) {
        case Kind::kContribution:
        case Kind::kPartial:
          absorb(chunk);
          break;
        default:  // a result from above, or what a host spreads
          spread(chunk);
      }
    }
  }
  void absorb(Chunk chunk) {
    Task& task = tasks_.at(chunk.task);
    const auto count = ++task.counts[chunk.number];
    if (count < children_.size()) return;
    task.counts.erase(chunk.number);
    chunk.bytes = chunk_bytes_;
    chunk.kind = task.up ? Kind::kPartial : Kind::kResult;
    chunk.place = task.up ? place_ : 0xffff;
    if (task.up) return send(chunk, parent_);
    if (!task.scatter) return spread(chunk);
    for (std::uint32_t child = 0; child < children_.size(); ++child) {
      chunk.bytes = chunk.number % children_.size() == child ? chunk_bytes_ : 0;
      send(chunk, children_[child]);
    }
  }
  void spread(const Chunk& chunk) {
    for (std::uint32_t child = 0; child < children_.size(); ++child)
      if (chunk.kind != Kind::kSpread || child != chunk.place) send(chunk, children_[child]);
  }
  void send(const Chunk& chunk, ns3::Ipv4Address to) {
    auto packet = ns3::Create<ns3::Packet>(reinterpret_cast<const std::uint8_t*>(&chunk), kHeader);
    packet->AddPaddingAtEnd(chunk.bytes);
    socket_->SendTo(packet, 0, ns3::InetSocketAddress(to, kPort));
  }

  ns3::Ptr<ns3::Socket> socket_;
  ns3::Ipv4Address parent_;
  std::uint16_t place_;
  std::uint32_t chunk_bytes_;
  std::vector<ns3::Ipv4Address> children_;
  std::map<std::uint32_t, Task> tasks_;
};

// A host's part in what its rack's switch adds and spreads.
class Racked {
 public:
  Racked(ns3::Ptr<ns3::Node> node, ns3::Ipv4Address leaf, std::uint16_t place, const Fabric& fabric)
      : fabric_(fabric), place_(place), leaf_(leaf) {
    socket_ = ns3::Socket::CreateSocket(node, ns3::UdpSocketFactory::GetTypeId());
    socket_->Bind(ns3::InetSocketAddress(ns3::Ipv4Address::GetAny(), kPort));
    socket_->SetIpTos(kBehind);
    socket_->SetRecvCallback(ns3::MakeCallback(&Racked::read, this));
  }

  // Contributes bytes to a sum, behind what it contributes already; of a reduce-scatter only the header to
  // chunks that are its own.
  void contribute(std::uint32_t task, std::uint64_t bytes, bool scatter, std::function<void()> done) {
    const auto chunks = static_cast<std::uint32_t>((bytes + fabric_.chunk_bytes - 1) / fabric_.chunk_bytes);
    sums_.push_back({task, chunks, scatter, 0, 0, std::move(done)});
    fill();
  }

  // Hands so many bytes to the others, and awaits as many from each.
  void spread(std::uint32_t task, std::uint64_t bytes, std::function<void()> done) {
    const std::uint64_t most = fabric_.mtu - 28 - kHeader;
    for (std::uint64_t at = 0; at < bytes; at += most)
      send({task, 0, Kind::kSpread, place_, static_cast<std::uint32_t>(std::min(most, bytes - at))});
    spread_[task].expected = bytes * (fabric_.hosts - 1);
    spread_[task].done = std::move(done);
    arrived(task, 0);
  }

 private:
  struct Sum {
    std::uint32_t task, chunks;
    bool scatter;
    std::uint32_t sent, results;
    std::function<void()> done;
  };
  struct Spread {
    std::uint64_t arrived = 0, expected = ~std::uint64_t{0};  // bytes of others
    std::function<void()> done;
  };

  void fill() {
    for (auto& sum : sums_)
      for (; sum.sent < sum.chunks && in_flight_ < kWindow; ++sum.sent, ++in_flight_) {
        const bool own = sum.scatter && sum.sent % fabric_.hosts == place_;
        send({sum.task, sum.sent, Kind::kContribution, place_, own ? 0 : fabric_.chunk_bytes});
      }
  }
  void arrived(std::uint32_t task, std::uint64_t bytes) {
    Spread& spread = spread_[task];
    spread.arrived += bytes;
    if (spread.arrived < spread.expected) return;
    const auto done = std::move(spread.done);
    spread_.erase(task);
    done();
  }
  void read(ns3::Ptr<ns3::Socket> socket) {
    while (auto packet = socket->Recv()) {
      Chunk chunk;
      packet->CopyData(reinterpret_cast<std::uint8_t*>(&chunk), kHeader);
      if (chunk.kind == Kind::kSpread) {
        arrived(chunk.task, chunk.bytes);
        continue;
      }
      --in_flight_;
      for (auto& sum : sums_)
        if (sum.task == chunk.task) ++sum.results;
      fill();
      while (!sums_.empty() && sums_.front().results == sums_.front().chunks) {
        const auto done = std::move(sums_.front().done);
        sums_.pop_front();
        done();
      }
    }
  }
  void send(const Chunk& chunk) {
    auto packet = ns3::Create<ns3::Packet>(reinterpret_cast<const std::uint8_t*>(&chunk), kHeader);
    packet->AddPaddingAtEnd(chunk.bytes);
    socket_->SendTo(packet, 0, ns3::InetSocketAddress(leaf_, kPort));
  }

  const Fabric fabric_;
  ns3::Ptr<ns3::Socket> socket_;
  const std::uint16_t place_;
  const ns3::Ipv4Address leaf_;
  std::deque<Sum> sums_;
  std::map<std::uint32_t, Spread> spread_;
  std::uint32_t in_flight_ = 0;
};

// One network: hosts, leaves, a spine; static routes, no ARP.
class Plane {
 public:
  const Fabric fabric;
  std::vector<std::unique_ptr<Switch>> leaves;
  std::unique_ptr<Switch> spine;
  std::vector<std::unique_ptr<Racked>> racked;  // by host
  std::uint64_t dropped = 0;

  explicit Plane(const Fabric& shape) : fabric(shape) {
    ns3::Config::SetDefault("ns3::TcpSocket::SegmentSize", ns3::UintegerValue(fabric.mtu - 52));
    hosts_.Create(fabric.racks * fabric.hosts);
    leaves_.Create(fabric.racks);
    spine_.Create(1);
    ns3::InternetStackHelper stack;
    stack.SetIpv6StackInstall(false);
    ns3::Ipv4StaticRoutingHelper routing;
    stack.SetRoutingHelper(routing);
    for (auto* nodes : {&hosts_, &leaves_, &spine_}) stack.Install(*nodes);
    spine = std::make_unique<Switch>(spine_.Get(0), ns3::Ipv4Address(), 0, fabric.chunk_bytes);
    for (std::uint32_t rack = 0; rack < fabric.racks; ++rack) {
      const auto leaf = leaves_.Get(rack);
      const std::uint32_t net = 0x0a000000 + (rack << 8);
      link(leaf, ns3::Ipv4Address(net + 254), spine_.Get(0), ns3::Ipv4Address(net + 253));
      routing.GetStaticRouting(leaf->GetObject<ns3::Ipv4>())->SetDefaultRoute(ns3::Ipv4Address(net + 253), 1);
      routing.GetStaticRouting(spine_.Get(0)->GetObject<ns3::Ipv4>())
          ->AddNetworkRouteTo(ns3::Ipv4Address(net), ns3::Ipv4Mask("/24"), rack + 1);
      leaves.push_back(std::make_unique<Switch>(leaf, ns3::Ipv4Address(net + 253),
                                                static_cast<std::uint16_t>(rack), fabric.chunk_bytes));
      spine->add_child(ns3::Ipv4Address(net + 254));
      for (std::uint32_t place = 0; place < fabric.hosts; ++place) {
        const auto host = hosts_.Get(rack * fabric.hosts + place);
        link(host, address(rack * fabric.hosts + place), leaf, ns3::Ipv4Address(net + 252));
        routing.GetStaticRouting(host->GetObject<ns3::Ipv4>())
            ->SetDefaultRoute(ns3::Ipv4Address(net + 252), 1);
        routing.GetStaticRouting(leaf->GetObject<ns3::Ipv4>())
            ->AddHostRouteTo(address(rack * fabric.hosts + place), place + 2);
        leaves.back()->add_child(address(rack * fabric.hosts + place));
        racked.push_back(std::make_unique<Racked>(host, ns3::Ipv4Address(net + 252),
                                                  static_cast<std::uint16_t>(place), fabric));
      }
    }
  }

  std::uint32_t size() const { return fabric.racks * fabric.hosts; }
  std::uint32_t new_task() { return ++tasks_; }

  Stream& stream(std::uint32_t from, std::uint32_t to) {
    auto& found = streams_[{from, to}];
    if (!found) {
      const auto port = static_cast<std::uint16_t>(10000 + ports_[to]++);
      found = std::make_unique<Stream>(hosts_.Get(from), hosts_.Get(to), address(to), port);
    }
    return *found;
  }

 private:
  ns3::Ipv4Address address(std::uint32_t host) const {
    return ns3::Ipv4Address(0x0a000000 + (host / fabric.hosts << 8) + host % fabric.hosts + 1);
  }
  void link(ns3::Ptr<ns3::Node> lower, ns3::Ipv4Address below, ns3::Ptr<ns3::Node> upper,
            ns3::Ipv4Address above) {
    ns3::PointToPointHelper wire;
    const ns3::DataRate rate(static_cast<std::uint64_t>(fabric.rate_bps));
    const bool bucket = fabric.burst_bytes > 0;
    wire.SetDeviceAttribute("DataRate", ns3::DataRateValue(bucket ? ns3::DataRate("100Gb/s") : rate));
    wire.SetDeviceAttribute("Mtu", ns3::UintegerValue(fabric.mtu));
    wire.SetChannelAttribute("Delay", ns3::TimeValue(ns3::Seconds(fabric.delay_s)));
    wire.SetQueue("ns3::DropTailQueue", "MaxSize", ns3::StringValue("2p"));
    const auto ends = wire.Install(lower, upper);
    ns3::TrafficControlHelper queues;
    const std::string fifo = "ns3::PfifoFastQueueDisc";
    const ns3::StringValue most("20000p");
    if (bucket) {
      const auto root = queues.SetRootQueueDisc(
          "ns3::TbfQueueDisc", "MaxSize", most, "Rate", ns3::DataRateValue(rate), "Burst",
          ns3::UintegerValue(fabric.burst_bytes), "Mtu", ns3::UintegerValue(0));
      const auto inner = queues.AddQueueDiscClasses(root, 1, "ns3::QueueDiscClass");
      queues.AddChildQueueDisc(root, inner[0], fifo, "MaxSize", most);
    } else {
      queues.SetRootQueueDisc(fifo, "MaxSize", most);
    }
    const auto discs = queues.Install(ends);
    const ns3::Ptr<ns3::Node> nodes[] = {lower, upper};
    const ns3::Ipv4Address addresses[] = {below, above};
    for (std::uint32_t end = 0; end < 2; ++end) {
      const auto ip = nodes[end]->GetObject<ns3::Ipv4>();
      const auto interface = ip->AddInterface(ends.Get(end));
      ip->AddAddress(interface, ns3::Ipv4InterfaceAddress(addresses[end], ns3::Ipv4Mask("/32")));
      ip->SetUp(interface);
      discs.Get(end)->TraceConnectWithoutContext("Drop", ns3::MakeCallback(&Plane::drop, this));
    }
  }
  void drop(ns3::Ptr<const ns3::QueueDiscItem>) { ++dropped; }

  ns3::NodeContainer hosts_, leaves_, spine_;
  std::map<std::pair<std::uint32_t, std::uint32_t>, std::unique_ptr<Stream>> streams_;
  std::map<std::uint32_t, std::uint32_t> ports_;
  std::uint32_t tasks_ = 0;
};

// Steps of a ring: in each, a member sends a message of equal size on, once it has that of the step before.
// An allreduce has 2 (L - 1) steps, its halves have L - 1. Of a member that is a rack, each host sends an
// equal part of the message, and has a part of its own in what arrives.
class Ring : public std::enable_shared_from_this<Ring> {
 public:
  Ring(Plane& plane, const std::vector<std::vector<std::uint32_t>>& members, std::uint64_t bytes,
       std::uint32_t steps, Done done)
      : plane_(plane), steps_(steps), done_(std::move(done)) {
    const auto message = std::max<std::uint64_t>(1, (bytes + members.size() - 1) / members.size());
    for (std::size_t member = 0; member < members.size(); ++member) {
      const auto& before = members[(member + members.size() - 1) % members.size()];
      const auto& here = members[member];
      const auto& next = members[(member + 1) % members.size()];
      for (std::size_t place = 0; place < here.size(); ++place) {
        Part& part = parts_[here[place]];
        part.received.resize(here.size() > 1 ? 1 : before.size());
        if (here.size() > 1 && next.size() > 1)
          part.next.push_back({next[place], 0});
        else if (here.size() > 1)
          part.next.push_back({next[0], place});
        else
          for (const auto host : next) part.next.push_back({host, 0});
        part.bytes = std::max<std::uint64_t>(1, message / std::max(here.size(), next.size()));
      }
    }
  }

  void start(std::uint32_t host) {
    parts_.at(host).started = true;
    go_on(host);
  }
  void start_all() {
    for (const auto& [host, part] : parts_) start(host);
  }

 private:
  struct Next {
    std::uint32_t host;
    std::size_t source;  // which of those that it waits for
  };
  struct Part {
    bool started = false;
    std::uint32_t sent = 0;
    std::vector<std::uint32_t> received;  // by source
    std::vector<Next> next;
    std::uint64_t bytes = 0;
  };

  void go_on(std::uint32_t host) {
    Part& part = parts_.at(host);
    if (!part.started) return;
    const auto received = *std::min_element(part.received.begin(), part.received.end());
    for (; part.sent < steps_ && part.sent <= received; ++part.sent)
      for (const auto& next : part.next)
        plane_.stream(host, next.host).send(part.bytes, [self = shared_from_this(), next] {
          ns3::Simulator::Schedule(ns3::Seconds(self->plane_.fabric.message_s), [self, next] {
            ++self->parts_.at(next.host).received[next.source];
            self->go_on(next.host);
          });
        });
    if (received == steps_ && part.sent == steps_) {
      part.started = false;
      done_(host);
    }
  }

  Plane& plane_;
  const std::uint32_t steps_;
  const Done done_;
  std::unordered_map<std::uint32_t, Part> parts_;  // by host
};

// Hosts, each a member of a ring.
inline std::vector<std::vector<std::uint32_t>> singles(std::uint32_t first, std::uint32_t count,
                                                       std::uint32_t step = 1) {
  std::vector<std::vector<std::uint32_t>> members;
  for (std::uint32_t place = 0; place < count; ++place) members.push_back({first + place * step});
  return members;
}

// A call on a plane: begins on all hosts at once; `done` comes when the last has its result.
class Call {
 public:
  virtual ~Call() = default;
  virtual void begin(std::function<void()> done) = 0;

 protected:
  // Counts hosts that are complete.
  Done last_of(std::uint32_t hosts, std::function<void()> done) {
    auto left = std::make_shared<std::uint32_t>(hosts);
    return [left, done](std::uint32_t) {
      if (--*left == 0) done();
    };
  }
};

// All hosts in a ring, the tensor in `parts` that go round at once.
class RingCall final : public Call {
 public:
  RingCall(Plane& plane, std::uint64_t bytes, std::uint32_t parts)
      : plane_(plane), bytes_(bytes), parts_(parts) {}
  void begin(std::function<void()> done) override {
    const auto last = last_of(plane_.size() * parts_, std::move(done));
    for (std::uint32_t part = 0; part < parts_; ++part)
      std::make_shared<Ring>(plane_, singles(0, plane_.size()), bytes_ / parts_, 2 * (plane_.size() - 1),
                             last)
          ->start_all();
  }

 private:
  Plane& plane_;
  const std::uint64_t bytes_;
  const std::uint32_t parts_;
};

// Rings in racks scatter sums, a ring of racks for each place adds them up, rings in racks gather.
class HierarchicalCall final : public Call {
 public:
  HierarchicalCall(Plane& plane, std::uint64_t bytes) : plane_(plane), bytes_(bytes) {}
  void begin(std::function<void()> done) override {
    const auto last = last_of(plane_.size(), std::move(done));
    const auto racks = plane_.fabric.racks, ranks = plane_.fabric.hosts;
    std::vector<std::shared_ptr<Ring>> down, across;
    for (std::uint32_t rack = 0; rack < racks; ++rack)
      down.push_back(std::make_shared<Ring>(plane_, singles(rack * ranks, ranks), bytes_, ranks - 1, last));
    for (std::uint32_t place = 0; place < ranks; ++place)
      across.push_back(
          std::make_shared<Ring>(plane_, singles(place, racks, ranks), bytes_ / ranks, 2 * (racks - 1),
                                 [down, ranks](std::uint32_t host) { down[host / ranks]->start(host); }));
    for (std::uint32_t rack = 0; rack < racks; ++rack)
      std::make_shared<Ring>(plane_, singles(rack * ranks, ranks), bytes_, ranks - 1,
                             [across, ranks](std::uint32_t host) { across[host % ranks]->start(host); })
          ->start_all();
  }

 private:
  Plane& plane_;
  const std::uint64_t bytes_;
};

// One tree: leaves add for their hosts, the spine for the leaves.
class TreeCall final : public Call {
 public:
  TreeCall(Plane& plane, std::uint64_t bytes) : plane_(plane), bytes_(bytes) {}
  void begin(std::function<void()> done) override {
    const auto last = last_of(plane_.size(), std::move(done));
    const auto task = plane_.new_task();
    const bool up = plane_.fabric.racks > 1;
    for (auto& leaf : plane_.leaves) leaf->add(task, false, up);
    plane_.spine->add(task, false, false);
    for (std::uint32_t host = 0; host < plane_.size(); ++host)
      plane_.racked[host]->contribute(task, bytes_, false, [last, host] { last(host); });
  }

 private:
  Plane& plane_;
  const std::uint64_t bytes_;
};

// The first `ina` racks are members of a ring, the hosts of all others, too (native/ina/composed.hpp): racks
// sum a segment, each host for a column of it; the columns go round the ring; racks hand them out. Segments
// overlap.
class ComposedCall final : public Call {
 public:
  ComposedCall(Plane& plane, std::uint32_t ina, std::uint64_t bytes, std::uint64_t segment,
               std::uint32_t at_once)
      : plane_(plane), ina_(ina), ranks_(plane.fabric.hosts), at_once_(at_once) {
    for (std::uint64_t left = bytes, issued = 0; left > 0;) {
      const auto size =
          std::min(left, std::max<std::uint64_t>(segment / 8, std::min({segment, issued, left / 2})));
      segments_.push_back(size);
      issued += size, left -= size;
    }
    const auto members = ina + std::uint64_t{plane.fabric.racks - ina} * ranks_;
    const auto message = *std::max_element(segments_.begin(), segments_.end()) / members;
    if (message >= kTurns * plane.fabric.mtu) turns_ = std::gcd(ranks_, kTurns);
  }

  void begin(std::function<void()> done) override {
    last_ = last_of(plane_.size(), std::move(done));
    states_.assign(plane_.size(), {});
    rack_tasks_.assign(ina_, {});
    for (std::uint32_t rack = 0; rack < ina_; ++rack)
      for (std::uint32_t task = 0; task < 2 * count(); ++task) {
        rack_tasks_[rack].push_back(plane_.new_task());
        plane_.leaves[rack]->add(rack_tasks_[rack].back(), true, false);
      }
    rings_.assign(count(), {});
    for (std::uint32_t turn = 0; turn < turns_; ++turn) {
      auto members = singles(ina_ * ranks_, plane_.size() - ina_ * ranks_);
      for (std::uint32_t rack = 0; rack < ina_; ++rack) {
        auto& hosts = members.emplace_back(ranks_ / turns_);
        std::iota(hosts.begin(), hosts.end(), rack * ranks_ + turn * ranks_ / turns_);
      }
      const auto steps = 2 * static_cast<std::uint32_t>(members.size() - 1);
      for (std::uint32_t segment = 0; segment < count(); ++segment)
        rings_[segment].push_back(
            std::make_shared<Ring>(plane_, members, segments_[segment] / turns_, steps,
                                   [this, segment](std::uint32_t host) { came_round(host, segment); }));
    }
    for (std::uint32_t host = 0; host < plane_.size(); ++host) {
      if (single(host)) states_[host].summed = count();
      in_rack(host);
      go_round(host);
    }
  }

 private:
  struct State {  // segments
    std::uint32_t asked = 0, summed = 0, started = 0, round = 0, handing = 0, handed = 0;
    std::deque<std::uint32_t> turns;  // that segments in the ring have still to come round
  };
  static constexpr std::uint32_t kDepth = 4, kTurns = 4;

  bool single(std::uint32_t host) const { return host >= ina_ * ranks_; }
  std::uint32_t count() const { return static_cast<std::uint32_t>(segments_.size()); }

  // What the rack begins next: sums of up to kDepth segments, then in turn a handing out and a sum.
  void in_rack(std::uint32_t host) {
    if (single(host)) return;
    State& state = states_[host];
    auto& rank = *plane_.racked[host];
    const auto& tasks = rack_tasks_[host / ranks_];
    while (true) {
      if (state.asked < std::min(count(), state.handing + kDepth)) {
        const auto segment = state.asked++;
        rank.contribute(tasks[segment], segments_[segment], true, [this, host] {
          ++states_[host].summed;
          go_round(host);
        });
      } else if (state.handing < state.round) {
        const auto segment = state.handing++;
        rank.spread(tasks[count() + segment], segments_[segment] / ranks_, [this, host] {
          if (++states_[host].handed == count()) last_(host);
        });
      } else {
        return;
      }
    }
  }
  void go_round(std::uint32_t host) {
    State& state = states_[host];
    while (state.started < state.round + at_once_ && state.started < state.summed) {
      const auto& rings = rings_[state.started++];
      state.turns.push_back(single(host) ? turns_ : 1);
      if (single(host))
        for (const auto& ring : rings) ring->start(host);
      else
        rings[host % ranks_ * turns_ / ranks_]->start(host);
    }
  }
  void came_round(std::uint32_t host, std::uint32_t segment) {
    State& state = states_[host];
    --state.turns[segment - state.round];
    for (; !state.turns.empty() && state.turns.front() == 0; state.turns.pop_front()) ++state.round;
    if (state.round == count() && single(host)) return last_(host);
    in_rack(host);
    go_round(host);
  }

  Plane& plane_;
  const std::uint32_t ina_, ranks_, at_once_;
  std::uint32_t turns_ = 1;
  std::vector<std::uint64_t> segments_;
  std::vector<State> states_;                              // by host
  std::vector<std::vector<std::shared_ptr<Ring>>> rings_;  // by segment and turn
  std::vector<std::vector<std::uint32_t>>
      rack_tasks_;  // by rack: a sum of each segment, then a handing out of each
  Done last_;
};

// A call on each of several planes, all at once.
class Simulation {
 public:
  Simulation() {
    using namespace ns3;
    Config::SetDefault("ns3::TcpSocket::InitialCwnd",
                       UintegerValue(1000));  // connections that have been used
    Config::SetDefault("ns3::TcpSocket::SndBufSize", UintegerValue(1 << 17));
    Config::SetDefault("ns3::TcpSocket::RcvBufSize", UintegerValue(1 << 17));
    Config::SetDefault("ns3::TcpSocket::TcpNoDelay", BooleanValue(true));
    // No queue overflows, so that a time-out would be for a packet that waits in one.
    Config::SetDefault("ns3::TcpSocketBase::MinRto", TimeValue(Seconds(10)));
  }
  ~Simulation() {
    ns3::Simulator::Destroy();  // before the planes, whose events it holds
    calls_.clear();
    planes_.clear();
  }

  void ring(const Fabric& fabric, std::uint64_t bytes, std::uint32_t parts) {
    calls_.push_back(std::make_unique<RingCall>(plane(fabric), bytes, parts));
  }
  void hierarchical(const Fabric& fabric, std::uint64_t bytes) {
    calls_.push_back(std::make_unique<HierarchicalCall>(plane(fabric), bytes));
  }
  void tree(const Fabric& fabric, std::uint64_t bytes) {
    calls_.push_back(std::make_unique<TreeCall>(plane(fabric), bytes));
  }
  void composed(const Fabric& fabric, std::uint32_t ina, std::uint64_t bytes, std::uint64_t segment,
                std::uint32_t at_once) {
    calls_.push_back(std::make_unique<ComposedCall>(plane(fabric), ina, bytes, segment, at_once));
  }

  // Runs until all hosts have their results; returns that time.
  double run() {
    busy_ = calls_.size();
    for (auto& call : calls_) ns3::Simulator::ScheduleNow(&Simulation::begin, this, call.get());
    ns3::Simulator::Run();
    const auto dropped = std::accumulate(planes_.begin(), planes_.end(), std::uint64_t{0},
                                         [](auto sum, const auto& plane) { return sum + plane->dropped; });
    if (dropped > 0)
      throw std::runtime_error(std::to_string(dropped) + " packets were dropped: a queue is too short");
    if (busy_ > 0) throw std::runtime_error("not all hosts have their results, and nothing is on its way");
    return ns3::Simulator::Now().GetSeconds();
  }
  std::uint64_t events() const { return ns3::Simulator::GetEventCount(); }

 private:
  Plane& plane(const Fabric& fabric) { return *planes_.emplace_back(std::make_unique<Plane>(fabric)); }
  void begin(Call* call) {
    call->begin([this] {
      if (--busy_ == 0) ns3::Simulator::Stop();
    });
  }

  std::vector<std::unique_ptr<Plane>> planes_;
  std::vector<std::unique_ptr<Call>> calls_;
  std::size_t busy_ = 0;
};

}  // namespace railweave_simulation
