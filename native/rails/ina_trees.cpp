// SPDX-License-Identifier: Apache-2.0
#include "rails/ina_trees.hpp"

#include <algorithm>
#include <stdexcept>
#include <utility>

namespace railweave {
namespace {

constexpr std::size_t kBatch = 128;                                // datagrams that are sent together
constexpr int kBatchesPerTurn = 16;                                // then the loop's other rails run
constexpr std::size_t kMostSpreadDatagram = 9000 - kIpUdpHeaders;  // in a jumbo frame
constexpr std::size_t kKernelOverhead = 3;  // the kernel charges up to this factor of a datagram's size
constexpr std::size_t kMostStrays = 256;    // further strays are dropped
constexpr Duration kStarved = 250 * kMillisecond;  // silence after which a rail stops yielding
constexpr Duration kInsists = 5 * kSecond;         // how long it then does not yield

bool is_probe(Bytes datagram) {
  return ina::decode(datagram.data()).kind == static_cast<std::uint8_t>(ina::Kind::kProbe);
}

/// Without a rate the link counts as fast. Then CPUs delay packets, and a smaller window would only leave
/// CPUs idle. The group's slots still bound the queue.
ina::WindowOptions window_for(const InaTreesOptions& options, std::size_t packet_bytes) {
  ina::WindowOptions window = options.window;
  if (options.rate_bps == 0) return window;
  const double bits = 8.0 * static_cast<double>(packet_bytes + kUdpHeaders);
  window.packet_time = static_cast<Duration>(bits * kSecond / static_cast<double>(options.rate_bps));
  return window;
}

}  // namespace

InaTrees::InaTrees(EventLoop& loop, ReadyHandler& handler, DatagramSocket& socket,
                   const InaTreesOptions& options, const std::vector<InaGroup>& groups,
                   const std::vector<SocketAddress>& members)
    : loop_(loop),
      handler_(handler),
      socket_(socket),
      members_(members),
      lanes_(groups.at(0).lanes),
      code_bytes_(options.secret ? spread::kCodeBytes : 0),
      yields_(socket.lower_effort()) {
  std::size_t slots = 0;
  for (const InaGroup& group : groups) {
    ina::EndpointOptions endpoint{.group = group.group,
                                  .child = group.child,
                                  .slots = group.slots,
                                  .lanes = group.lanes,
                                  .world_size = group.world_size,
                                  .window = window_for(options, ina::packet_bytes(group.lanes))};
    if (yields_) endpoint.window.longest_wait = endpoint.window.max_rto;
    std::optional<spread::Keys> keys;
    if (options.secret) {
      const std::uint64_t number = options.number(trees_.size());
      endpoint.seal = {.secret = *options.secret, .tree = number, .rank = group.rank};
      endpoint.redo_within = options.redo_within;
      keys = spread::Keys::of(*options.secret, number);
    }
    trees_.emplace_back(
        endpoint, spread::SpreaderOptions{.group = group.group,
                                          .child = group.child,
                                          .rank = group.rank,
                                          .world_size = group.world_size,
                                          .rate_bps = options.spread_rate_bps,
                                          .roots = options.roots != 0 ? options.roots : group.world_size,
                                          .keys = keys});
    trees_.back().virtual_address = group.virtual_address;
    trees_.back().unsent.reserve(kBatch);
    trees_.back().unsent_spread.reserve(kBatch);
    slots += group.slots;
  }
  connect();
  const std::size_t packet = ina::packet_bytes(lanes_);
  const auto largest = socket_.largest_datagram();
  if (largest && packet > *largest) {
    const std::string& link = socket_.interface();
    const std::string needed = std::to_string(packet + kIpUdpHeaders);
    throw std::runtime_error("link '" + link + "' has an MTU of " + std::to_string(*largest + kIpUdpHeaders) +
                             ": expected " + needed + " or more, for packets of " + std::to_string(lanes_) +
                             " lanes; raise it (ip link set dev " + link + " mtu " + needed +
                             "), or write the plane's least MTU into the controller's topology");
  }
  socket_.set_buffers(std::max(2 * slots * packet, kBatch * kMostSpreadDatagram) * kKernelOverhead);
  loop_.watch(socket_.fd(), EPOLLIN, handler_);
}

InaTrees::~InaTrees() { loop_.unwatch(socket_.fd()); }

void InaTrees::connect() {
  std::vector<SocketAddress> remotes;
  for (const Tree& tree : trees_) remotes.push_back({tree.virtual_address, ina::kUdpPort});
  remotes.insert(remotes.end(), members_.begin(), members_.end());
  socket_.set_remotes(remotes);
  if (members_.empty()) return;
  // If no route gives an MTU, a SPREAD is as large as a contribution, which all links of a plane carry.
  const std::size_t contribution = ina::packet_bytes(lanes_);
  const std::size_t datagram = socket_.largest_datagram().value_or(contribution);
  const std::size_t payload =
      std::clamp(datagram, contribution, kMostSpreadDatagram) - ina::kHeaderBytes - code_bytes_;
  for (Tree& tree : trees_) tree.endpoint.set_spread_bytes(static_cast<std::uint32_t>(payload));
}

// ---------------------------------------------------------------- moves and ends

std::uint64_t InaTrees::pause(std::size_t index, Time now) {
  Tree& tree = trees_[index];
  tree.unsent.clear();
  tree.unsent_spread.clear();
  tree.spreader.pause();
  return tree.endpoint.pause(now);
}

void InaTrees::resume(std::size_t index, const InaGroup& group, std::uint64_t resume_from, Time now) {
  Tree& tree = trees_[index];
  const std::string address = std::exchange(tree.virtual_address, group.virtual_address);
  try {
    connect();
    tree.endpoint.resume(
        {.group = group.group, .child = group.child, .slots = group.slots, .lanes = group.lanes}, resume_from,
        now);
    tree.spreader.resume(group.group, group.child, now);
  } catch (...) {
    tree.virtual_address = address;
    throw;
  }
  flush(now);
}

void InaTrees::abort() {
  for (Tree& tree : trees_) {
    tree.endpoint.abort();
    tree.spreader.halt();
    tree.unsent.clear();
    tree.unsent_spread.clear();
  }
}

void InaTrees::halt() {
  for (Tree& tree : trees_) {
    tree.endpoint.halt();
    tree.spreader.halt();
    tree.unsent.clear();
    tree.unsent_spread.clear();
  }
  halted_ = true;
}

void InaTrees::restart(const std::vector<std::uint64_t>& bases, Time now) {
  for (std::size_t i = 0; i < trees_.size(); ++i) trees_[i].endpoint.restart(bases[i], now);
  halted_ = false;
}

void InaTrees::follow_interface() {
  if (!socket_.outdated()) return;
  const Descriptor old = socket_.reopen();
  loop_.unwatch(old.get());
  loop_.watch(socket_.fd(), EPOLLIN, handler_);
  blocked_ = false;
  connect();
}

// ---------------------------------------------------------------- receiving

void InaTrees::on_ready(std::uint32_t events, Time now) {
  if (events & EPOLLOUT) {
    blocked_ = false;
    loop_.rewatch(socket_.fd(), EPOLLIN, handler_);
  }
  for (int i = 0; i < kBatchesPerTurn; ++i) {
    const bool more = socket_.receive([&](Bytes datagram) { receive(datagram, now); });
    flush(now);
    if (!more) break;
    now = EventLoop::now();
  }
}

void InaTrees::take(Bytes datagram, Time now) {
  receive(datagram, now, /*stray=*/true);
  flush(now);
}

/// Passes the datagram to its group's tree. The first tree counts datagrams of strangers.
void InaTrees::receive(Bytes datagram, Time now, bool stray) {
  if (datagram.size() < ina::kHeaderBytes) return trees_.front().endpoint.receive(datagram, now);
  const ina::Header header = ina::decode(datagram.data());
  auto tree = std::ranges::find_if(trees_, [&](const Tree& t) { return t.endpoint.knows(header.group); });
  if (tree == trees_.end()) {
    if (socket_.shared() && !stray) return keep_stray(datagram);
    tree = trees_.begin();
  }
  if (header.kind < static_cast<std::uint8_t>(ina::Kind::kSpread)) {
    tree->endpoint.receive(datagram, now);
    start_spreads(*tree, now);
  } else if (!halted_) {
    tree->spreader.receive(datagram, now, tree->endpoint.next_chunk());
  }
}

void InaTrees::keep_stray(Bytes datagram) {
  if (strays_.size() < kMostStrays) strays_.push_back({{datagram.begin(), datagram.end()}});
}

/// Starts multicasts at once, because SPREADs of other ranks may be next in the socket.
void InaTrees::start_spreads(Tree& tree, Time now) {
  while (const auto told = tree.endpoint.poll_ready()) {
    const auto& [task, slice, ready, begun] = *told;
    if (begun) {
      tree.spreader.forget(task, ready.unfinished);
    } else {
      tree.spreader.start(task, slice, ready.chunk_bytes, ready.unfinished, now);
    }
  }
}

// ---------------------------------------------------------------- time

Time InaTrees::deadline() const {
  Time first = kNever;
  for (const Tree& tree : trees_)
    first = std::min({first, tree.endpoint.deadline(), tree.spreader.deadline()});
  return first;
}

void InaTrees::expire(Time now) {
  for (Tree& tree : trees_) {
    tree.endpoint.expire(now);
    tree.spreader.expire(now);
  }
  flush(now);
}

/// Other traffic may never pause. After kStarved without a result, this rail does not yield for kInsists. Its
/// repeated packets then overtake its waiting packets.
void InaTrees::insist(Time now) {
  for (const Tree& tree : trees_)
    if (tree.endpoint.silence(now) >= kStarved) insists_until_ = now + kInsists;
  const bool yields = now >= insists_until_;
  if (yields != socket_.lower_effort()) socket_.set_lower_effort(yields);
}

// ---------------------------------------------------------------- sending

void InaTrees::flush(Time now) {
  if (yields_) insist(now);
  for (bool more = true; more && !blocked_;) {
    more = false;
    for (std::size_t i = 0; i < trees_.size() && !blocked_; ++i) {
      Tree& tree = trees_[i];
      while (tree.unsent.size() < kBatch) {
        const Bytes datagram = tree.endpoint.transmit(now);
        if (datagram.empty()) break;
        tree.unsent.insert(is_probe(datagram) ? tree.unsent.begin() : tree.unsent.end(), datagram);
      }
      more = more || tree.unsent.size() == kBatch;
      push_unsent(i);
      if (blocked_) return;
      more = fill_spread(tree, now) || more;
      push_spread(i);
    }
  }
}

/// Returns how many datagrams are gone. If the socket is full, all sending stops until EPOLLOUT.
std::size_t InaTrees::push(std::span<const Bytes> datagrams, std::size_t remote, bool urgent) {
  const std::size_t gone = socket_.send(datagrams, remote, urgent, [this](std::span<const Bytes> sent) {
    std::ranges::for_each(sent, [this](Bytes datagram) { count(datagram); });
  });
  if (gone < datagrams.size()) {
    blocked_ = true;
    loop_.rewatch(socket_.fd(), EPOLLIN | EPOLLOUT, handler_);
  }
  return gone;
}

/// Probes are at the front, and are sent as urgent.
void InaTrees::push_unsent(std::size_t i) {
  std::vector<Bytes>& unsent = trees_[i].unsent;
  const auto data = std::ranges::find_if_not(unsent, is_probe);
  const auto probes = static_cast<std::size_t>(data - unsent.begin());
  const std::span<const Bytes> all = unsent;
  std::size_t gone = probes > 0 ? push(all.first(probes), i, /*urgent=*/true) : 0;
  if (!blocked_) gone += push(all.subspan(probes), i);
  unsent.erase(unsent.begin(), unsent.begin() + static_cast<std::ptrdiff_t>(gone));
}

/// Returns true if there may be more.
bool InaTrees::fill_spread(Tree& tree, Time now) {
  const Duration round_trip = std::max<Duration>(tree.endpoint.window().smoothed_rtt(), 1);
  tree.spreader.set_reducing(tree.endpoint.in_flight() > 0 ? round_trip : 0);
  while (tree.unsent_spread.size() < kBatch) {
    const spread::Packet packet = tree.spreader.transmit(now);
    if (packet.bytes.empty()) return false;
    tree.unsent_spread.push_back(packet);
  }
  return true;
}

/// Sends each run of packets with the same destination together.
void InaTrees::push_spread(std::size_t i) {
  std::vector<spread::Packet>& unsent = trees_[i].unsent_spread;
  while (!unsent.empty() && !blocked_) {
    const int to = unsent.front().to;
    std::vector<Bytes> run;
    for (const spread::Packet& packet : unsent) {
      if (packet.to != to) break;
      run.push_back(packet.bytes);
    }
    const std::size_t gone =
        push(run, to == spread::Packet::kTree ? i : trees_.size() + static_cast<std::size_t>(to));
    unsent.erase(unsent.begin(), unsent.begin() + static_cast<std::ptrdiff_t>(gone));
  }
}

void InaTrees::count(Bytes datagram) {
  const ina::Header header = ina::decode(datagram.data());
  if (header.kind == static_cast<std::uint8_t>(ina::Kind::kProbe) ||
      header.kind == static_cast<std::uint8_t>(ina::Kind::kFetch)) {
    sent_.control += datagram.size() + kUdpHeaders;
  } else if (header.flags & ina::flag::kRetransmission) {
    sent_.resends += datagram.size() + kUdpHeaders;
  } else {
    const bool spread = header.kind == static_cast<std::uint8_t>(ina::Kind::kSpread);
    sent_.payload += datagram.size() - ina::kHeaderBytes - (spread ? code_bytes_ : 0);
  }
}

// ---------------------------------------------------------------- reports

std::optional<InaTrees::Event> InaTrees::poll() {
  for (Tree& tree : trees_) {
    while (const auto done = tree.spreader.poll()) tree.endpoint.spread_done(done->slice_id);
    const auto event = tree.endpoint.poll();
    if (!event) continue;
    if (const auto* failure = std::get_if<Failure>(&*event)) {
      tree.mismatches += failure->kind == FailureKind::kMismatch;
      return *failure;
    }
    if (const auto* stalled = std::get_if<ina::Stalled>(&*event)) {
      return Stall{.group = tree.endpoint.group(),
                   .first_switch_ok = stalled->first_switch_ok,
                   .root_ok = stalled->root_ok,
                   .spoilt = stalled->spoilt};
    }
    return std::get<ina::SliceDone>(*event);
  }
  if (strays_.empty()) return std::nullopt;
  Stray stray = std::move(strays_.front());
  strays_.pop_front();
  return stray;
}

void InaTrees::add_to(RailStats& stats) const {
  stats += socket_.stats();
  stats.sent += sent_;
  for (const Tree& tree : trees_) {
    stats.retransmissions += tree.endpoint.stats().retransmissions;
    stats.duplicates += tree.endpoint.stats().duplicates;
    stats.malformed += tree.endpoint.stats().refused_in_all() + tree.spreader.stats().refused_in_all();
    stats.duplicates += tree.spreader.stats().duplicates;
    stats.multicast_bytes += tree.spreader.stats().sent_bytes;
    stats.fetched_bytes += tree.spreader.stats().fetched_bytes;
  }
}

std::uint64_t InaTrees::progress() const {
  std::uint64_t steps = 0;
  for (const Tree& tree : trees_) {
    const spread::SpreaderStats& spread = tree.spreader.stats();
    steps += tree.endpoint.stats().results + spread.received + spread.sent;
  }
  return steps;
}

GroupStats InaTrees::group_stats(std::size_t index) const {
  const Tree& tree = trees_[index];
  const ina::EndpointStats& counts = tree.endpoint.stats();
  const spread::SpreaderStats& spread = tree.spreader.stats();
  GroupStats stats{counts};
  stats.group = tree.endpoint.group();
  stats.slots = tree.endpoint.slots();
  stats.in_flight = tree.endpoint.in_flight();
  stats.window = tree.endpoint.window().size();
  stats.rtt = tree.endpoint.window().smoothed_rtt();
  stats.mismatches = tree.mismatches;
  stats.refused_packets = counts.refused_in_all() + spread.refused_in_all();
  stats.stale += spread.stale;
  stats.duplicates += spread.duplicates;
  stats.multicasts = spread.tasks;
  stats.multicast_bytes = spread.sent_bytes;
  stats.fetched_bytes = spread.fetched_bytes;
  stats.answered_bytes = spread.answered_bytes;
  return stats;
}

}  // namespace railweave
