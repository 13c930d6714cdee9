// SPDX-License-Identifier: Apache-2.0
// A network on links, queues, IP and TCP of ns-3, and the switches that aggregate on it.
//
// A plane is racks of hosts below one spine. Switches forward IP. Rings are messages over ns-3's TCP. A
// switch adds UDP datagrams to its address. Their first 16 bytes are the header, as on the wire. No element
// is added: the simulation only computes times. UDP must not lose a packet, because none is sent again.
#pragma once

#include <algorithm>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "ns3/core-module.h"
#include "ns3/internet-module.h"
#include "ns3/network-module.h"
#include "ns3/point-to-point-module.h"
#include "ns3/traffic-control-module.h"

namespace railweave_simulation {

constexpr std::uint16_t kPort = 5257;
constexpr std::uint32_t kHeader = 16;   // bytes
constexpr std::uint32_t kWindow = 256;  // chunks that a host has in flight
constexpr std::uint8_t kBehind = 0x08;  // type of service that leaves after other traffic

struct Fabric {
  std::uint32_t racks, hosts;      // hosts per rack
  std::uint32_t mtu, chunk_bytes;  // that a switch adds at once
  double rate_bps, delay_s;        // of each link
  double message_s;                // that a host takes to go on after a message
  std::uint32_t burst_bytes;       // of ports that are token buckets; 0: packets leave at the link's rate
};

enum class Kind : std::uint16_t { kContribution, kPartial, kResult, kSpread };

struct Chunk {  // the header
  std::uint32_t task, number;
  Kind kind;
  std::uint16_t place;  // of the sender in its rack, or of the rack
  std::uint32_t bytes;  // behind the header
};
static_assert(sizeof(Chunk) == kHeader);

// A socket for datagrams that let other traffic pass.
template <typename Owner>
ns3::Ptr<ns3::Socket> datagrams(ns3::Ptr<ns3::Node> node, Owner* owner) {
  const auto socket = ns3::Socket::CreateSocket(node, ns3::UdpSocketFactory::GetTypeId());
  socket->Bind(ns3::InetSocketAddress(ns3::Ipv4Address::GetAny(), kPort));
  socket->SetIpTos(kBehind);
  socket->SetRecvCallback(ns3::MakeCallback(&Owner::read, owner));
  return socket;
}

inline void send(ns3::Ptr<ns3::Socket> socket, const Chunk& chunk, ns3::Ipv4Address to) {
  const auto packet = ns3::Create<ns3::Packet>(reinterpret_cast<const std::uint8_t*>(&chunk), kHeader);
  packet->AddPaddingAtEnd(chunk.bytes);
  socket->SendTo(packet, 0, ns3::InetSocketAddress(to, kPort));
}

inline Chunk header_of(const ns3::Packet& packet) {
  Chunk chunk;
  packet.CopyData(reinterpret_cast<std::uint8_t*>(&chunk), kHeader);
  return chunk;
}

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
      : socket_(datagrams(node, this)), parent_(parent), place_(place), chunk_bytes_(chunk_bytes) {}
  void add_child(ns3::Ipv4Address address) { children_.push_back(address); }
  // Of a reduce-scatter: each result is for one child, of the others only the header. A sum goes to the
  // parent first if there is one.
  void add(std::uint32_t task, bool scatter, bool up) { tasks_[task] = {scatter, up, {}}; }
  void read(ns3::Ptr<ns3::Socket> socket) {
    while (auto packet = socket->Recv()) {
      const auto chunk = header_of(*packet);
      if (chunk.kind == Kind::kContribution || chunk.kind == Kind::kPartial)
        absorb(chunk);
      else  // a result from above, or a chunk that a host spreads
        spread(chunk);
    }
  }

 private:
  struct Task {
    bool scatter, up;
    std::map<std::uint32_t, std::uint32_t> counts;  // contributions, by chunk in flight
  };

  void absorb(Chunk chunk) {
    Task& task = tasks_.at(chunk.task);
    const auto count = ++task.counts[chunk.number];
    if (count < children_.size()) return;
    task.counts.erase(chunk.number);
    chunk.bytes = chunk_bytes_;
    chunk.kind = task.up ? Kind::kPartial : Kind::kResult;
    chunk.place = task.up ? place_ : 0xffff;
    if (task.up) return send(socket_, chunk, parent_);
    if (!task.scatter) return spread(chunk);
    for (std::uint32_t child = 0; child < children_.size(); ++child) {
      chunk.bytes = chunk.number % children_.size() == child ? chunk_bytes_ : 0;
      send(socket_, chunk, children_[child]);
    }
  }
  void spread(const Chunk& chunk) {
    for (std::uint32_t child = 0; child < children_.size(); ++child)
      if (chunk.kind != Kind::kSpread || child != chunk.place) send(socket_, chunk, children_[child]);
  }

  const ns3::Ptr<ns3::Socket> socket_;
  const ns3::Ipv4Address parent_;
  const std::uint16_t place_;
  const std::uint32_t chunk_bytes_;
  std::vector<ns3::Ipv4Address> children_;
  std::map<std::uint32_t, Task> tasks_;
};

// A host's part in what its rack's switch adds and spreads.
class Racked {
 public:
  Racked(ns3::Ptr<ns3::Node> node, ns3::Ipv4Address leaf, std::uint16_t place, const Fabric& fabric)
      : fabric_(fabric), socket_(datagrams(node, this)), place_(place), leaf_(leaf) {}

  // Contributes bytes to a sum, behind what it contributes already; of a reduce-scatter only the header to
  // chunks that are its own.
  void contribute(std::uint32_t task, std::uint64_t bytes, bool scatter, std::function<void()> done) {
    const auto chunks = static_cast<std::uint32_t>((bytes + fabric_.chunk_bytes - 1) / fabric_.chunk_bytes);
    sums_.push_back({task, chunks, scatter, 0, 0, std::move(done)});
    fill();
  }

  // Sends this number of bytes to the other hosts, and waits for as many from each.
  void spread(std::uint32_t task, std::uint64_t bytes, std::function<void()> done) {
    const std::uint64_t most = fabric_.mtu - 28 - kHeader;
    for (std::uint64_t at = 0; at < bytes; at += most)
      send(socket_, {task, 0, Kind::kSpread, place_, static_cast<std::uint32_t>(std::min(most, bytes - at))},
           leaf_);
    spread_[task].expected = bytes * (fabric_.hosts - 1);
    spread_[task].done = std::move(done);
    arrived(task, 0);
  }

  void read(ns3::Ptr<ns3::Socket> socket) {
    while (auto packet = socket->Recv()) {
      const auto chunk = header_of(*packet);
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
        send(socket_, {sum.task, sum.sent, Kind::kContribution, place_, own ? 0 : fabric_.chunk_bytes},
             leaf_);
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

  const Fabric fabric_;
  const ns3::Ptr<ns3::Socket> socket_;
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

}  // namespace railweave_simulation
