// SPDX-License-Identifier: Apache-2.0
#include "rails/ina_rail.hpp"

#include <algorithm>
#include <stdexcept>
#include <utility>
#include <variant>

#include "rails/socket.hpp"

namespace railweave {
namespace {

constexpr std::size_t kBatch = 128;                   // datagrams between two looks at the socket
constexpr int kBatchesPerTurn = 16;                   // then the other rails of the loop get theirs
constexpr Duration kMaxOccupancy = kMillisecond / 2;  // of a shaped link by one super-packet
constexpr std::size_t kMostSpreadDatagram = 9000 - kIpUdpHeaders;  // of a jumbo frame
constexpr std::size_t kKernelOverhead = 3;  // the kernel charges a datagram up to so many times its size

/// Where no rate is given the link is taken to be fast: what delays packets then is CPUs, which a smaller
/// window would only idle. The group's slots still bound the queue.
ina::WindowOptions window_for(const InaRailOptions& options, std::size_t packet_bytes) {
  ina::WindowOptions window = options.window;
  if (options.rate_bps == 0) return window;
  const double bits = 8.0 * static_cast<double>(packet_bytes + kUdpHeaders);
  window.packet_time = static_cast<Duration>(bits * kSecond / static_cast<double>(options.rate_bps));
  return window;
}

std::size_t super_packet_bytes(std::uint64_t rate_bps) {
  if (rate_bps == 0) return ~std::size_t{0};
  return static_cast<std::size_t>(static_cast<double>(rate_bps) * kMaxOccupancy / kSecond / 8);
}

}  // namespace

InaRail::InaRail(EventLoop& loop, const InaRailOptions& options, RailListener& listener)
    : loop_(loop),
      options_(options),
      listener_(listener),
      socket_({.address = options.address, .interface = options.interface}, 0) {
  socket_.set_super_packets(super_packet_bytes(options.rate_bps));
}

InaRail::~InaRail() {
  if (!trees_.empty()) loop_.unwatch(socket_.fd());
}

void InaRail::attach(const std::vector<InaGroup>& groups, const std::vector<SocketAddress>& members,
                     int roots) {
  if (!trees_.empty()) throw std::invalid_argument("the rail is attached already");
  if (groups.empty()) throw std::invalid_argument("an in-network rail has at least one tree");
  std::deque<Tree> trees;
  std::size_t slots = 0;
  for (const InaGroup& group : groups) {
    if (group.lanes != groups[0].lanes) throw std::invalid_argument("the rail's trees differ in lanes");
    trees.emplace_back(ina::EndpointOptions{.group = group.group,
                                            .child = group.child,
                                            .slots = group.slots,
                                            .lanes = group.lanes,
                                            .world_size = group.world_size,
                                            .window = window_for(options_, ina::packet_bytes(group.lanes))},
                       spread::SpreaderOptions{.group = group.group,
                                               .child = group.child,
                                               .rank = group.rank,
                                               .world_size = group.world_size,
                                               .rate_bps = options_.rate_bps / groups.size(),
                                               .roots = roots != 0 ? roots : group.world_size});
    trees.back().virtual_address = group.virtual_address;
    trees.back().unsent.reserve(kBatch);
    trees.back().unsent_spread.reserve(kBatch);
    slots += group.slots;
  }
  trees_ = std::move(trees);
  members_ = members;
  lanes_ = groups[0].lanes;
  const std::size_t packet = ina::packet_bytes(lanes_);
  try {
    connect();
    const auto largest = socket_.largest_datagram();
    if (largest && packet > *largest)
      throw std::runtime_error("packets of " + std::to_string(packet + kIpUdpHeaders) +
                               " bytes exceed the MTU of " + std::to_string(*largest + kIpUdpHeaders) +
                               "; raise it, or let the group use fewer lanes");
    socket_.set_buffers(std::max(2 * slots * packet, kBatch * kMostSpreadDatagram) * kKernelOverhead);
    loop_.watch(socket_.fd(), EPOLLIN, *this);
  } catch (...) {
    trees_.clear();
    throw;
  }
}

void InaRail::connect() {
  std::vector<SocketAddress> remotes;
  for (const Tree& tree : trees_) remotes.push_back({tree.virtual_address, ina::kUdpPort});
  remotes.insert(remotes.end(), members_.begin(), members_.end());
  socket_.set_remotes(remotes);
  if (members_.empty()) return;
  // Where no route tells, what a contribution has: all links of a plane carry that.
  const std::size_t contribution = ina::packet_bytes(lanes_);
  const std::size_t datagram = socket_.largest_datagram().value_or(contribution);
  const std::size_t payload = std::clamp(datagram, contribution, kMostSpreadDatagram) - ina::kHeaderBytes;
  for (Tree& tree : trees_) tree.endpoint.set_spread_bytes(static_cast<std::uint32_t>(payload));
}

std::size_t InaRail::tree_of(std::uint16_t group) const {
  for (std::size_t i = 0; i < trees_.size(); ++i)
    if (trees_[i].endpoint.group() == group) return i;
  throw std::invalid_argument("this rail has no tree of group " + std::to_string(group));
}

std::uint64_t InaRail::pause(std::uint16_t group, Time now) {
  Tree& tree = trees_[tree_of(group)];
  tree.unsent.clear();
  tree.unsent_spread.clear();
  tree.spreader.pause();
  return tree.endpoint.pause(now);
}

void InaRail::resume(std::uint16_t old_group, const InaGroup& group, std::uint64_t resume_from, Time now) {
  Tree& tree = trees_[tree_of(old_group)];
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
  serve(now);
}

void InaRail::start(const Slice& slice, Time now) {
  if (trees_.empty())
    throw std::logic_error("an in-network rail must be attached to a group before slices start");
  if (halted_) return;
  if (slices_.empty()) busy_since_ = now;
  const std::size_t step = ina::tree_elements(slice, lanes_, trees_.size());
  slices_.push_back({.slice = slice, .trees_left = (slice.count + step - 1) / step});
  for (std::size_t i = 0, at = 0; at < slice.count; ++i, at += step) {
    Slice part = slice;
    part.input += at * item_size(slice.call.dtype);
    part.output += at * item_size(slice.call.dtype);
    part.count = std::min(step, slice.count - at);
    trees_[i].endpoint.start(part);
  }
  flush(now);
}

Time InaRail::deadline() const {
  Time first = kNever;
  for (const Tree& tree : trees_)
    first = std::min({first, tree.endpoint.deadline(), tree.spreader.deadline()});
  return first;
}

void InaRail::expire(Time now) {
  for (Tree& tree : trees_) {
    tree.endpoint.expire(now);
    tree.spreader.expire(now);
  }
  serve(now);
}

void InaRail::abort() {
  for (Tree& tree : trees_) {
    tree.endpoint.abort();
    tree.spreader.halt();
    tree.unsent.clear();
    tree.unsent_spread.clear();
  }
  slices_.clear();
}

void InaRail::halt(Time now) {
  if (!slices_.empty()) stats_.busy += now - busy_since_;
  for (Tree& tree : trees_) {
    tree.endpoint.halt();
    tree.spreader.halt();
    tree.unsent.clear();
    tree.unsent_spread.clear();
  }
  slices_.clear();
  halted_ = true;
}

void InaRail::restart(const Restart& restart, Time now) {
  if (restart.bases.size() != trees_.size())
    throw std::invalid_argument(std::to_string(restart.bases.size()) + " bases for " +
                                std::to_string(trees_.size()) + " trees");
  const std::vector<std::uint64_t> own = next_chunks();
  for (std::size_t i = 0; i < own.size(); ++i)
    if (restart.bases[i] < own[i])
      throw std::invalid_argument(
          "tree " + std::to_string(i) + " restarts at the greatest next chunk of all ranks; " +
          std::to_string(restart.bases[i]) + " is below this rank's own, " + std::to_string(own[i]));
  if (socket_.outdated()) follow_interface();
  for (std::size_t i = 0; i < own.size(); ++i) trees_[i].endpoint.restart(restart.bases[i], now);
  halted_ = false;
}

void InaRail::follow_interface() {
  const Descriptor old = socket_.reopen();
  loop_.unwatch(old.get());
  loop_.watch(socket_.fd(), EPOLLIN, *this);
  blocked_ = false;
  connect();
}

std::vector<std::uint64_t> InaRail::next_chunks() const {
  std::vector<std::uint64_t> next;
  for (const Tree& tree : trees_) next.push_back(tree.endpoint.next_chunk());
  return next;
}

void InaRail::on_ready(std::uint32_t events, Time now) {
  if (events & EPOLLOUT) {
    blocked_ = false;
    loop_.rewatch(socket_.fd(), EPOLLIN, *this);
  }
  for (int i = 0; i < kBatchesPerTurn; ++i) {
    const bool more = socket_.receive([&](Bytes datagram) { receive(datagram, now); });
    flush(now);
    if (!more) break;
    now = EventLoop::now();
  }
  serve(now);
}

void InaRail::serve(Time now) {
  flush(now);
  report(now);
}

/// To the tree whose group it names; strangers' to the first, which counts them.
void InaRail::receive(Bytes datagram, Time now) {
  std::size_t to = 0;
  if (trees_.size() > 1 && datagram.size() >= ina::kHeaderBytes) {
    const std::uint16_t group = ina::decode(datagram.data()).group;
    while (to + 1 < trees_.size() && !trees_[to].endpoint.knows(group)) ++to;
  }
  const bool spread = datagram.size() >= ina::kHeaderBytes &&
                      ina::decode(datagram.data()).kind >= static_cast<std::uint8_t>(ina::Kind::kSpread);
  if (!spread) {
    trees_[to].endpoint.receive(datagram, now);
    return start_spreads(trees_[to], now);
  }
  if (!halted_) trees_[to].spreader.receive(datagram, now);
}

/// At once: what others spread may be next in the socket.
void InaRail::start_spreads(Tree& tree, Time now) {
  while (const auto told = tree.endpoint.poll_ready()) {
    const auto& [task, slice, ready, begun] = *told;
    if (begun) {
      tree.spreader.forget(task, ready.unfinished);
    } else {
      tree.spreader.start(task, slice, ready.chunk_bytes, ready.unfinished, now);
    }
  }
}

void InaRail::flush(Time now) {
  for (bool more = true; more && !blocked_;) {
    more = false;
    for (std::size_t i = 0; i < trees_.size() && !blocked_; ++i) {
      Tree& tree = trees_[i];
      while (tree.unsent.size() < kBatch) {
        const Bytes datagram = tree.endpoint.transmit(now);
        if (datagram.empty()) break;
        tree.unsent.push_back(datagram);
      }
      more = more || tree.unsent.size() == kBatch;
      push_unsent(i);
      if (blocked_) return;
      more = fill_spread(tree, now) || more;
      push_spread(i);
    }
  }
}

/// How many are gone. Stops everything until EPOLLOUT if the socket is full.
std::size_t InaRail::push(std::span<const Bytes> datagrams, std::size_t remote) {
  const std::size_t gone = socket_.send(datagrams, remote);
  std::ranges::for_each(datagrams.first(gone), [this](Bytes datagram) { count(datagram); });
  if (gone < datagrams.size()) {
    blocked_ = true;
    loop_.rewatch(socket_.fd(), EPOLLIN | EPOLLOUT, *this);
  }
  return gone;
}

void InaRail::push_unsent(std::size_t i) {
  std::vector<Bytes>& unsent = trees_[i].unsent;
  unsent.erase(unsent.begin(), unsent.begin() + static_cast<std::ptrdiff_t>(push(unsent, i)));
}

/// True if there may be more.
bool InaRail::fill_spread(Tree& tree, Time now) {
  const Duration round_trip = std::max<Duration>(tree.endpoint.window().smoothed_rtt(), 1);
  tree.spreader.set_reducing(tree.endpoint.in_flight() > 0 ? round_trip : 0);
  while (tree.unsent_spread.size() < kBatch) {
    const spread::Packet packet = tree.spreader.transmit(now);
    if (packet.bytes.empty()) return false;
    tree.unsent_spread.push_back(packet);
  }
  return true;
}

/// Runs to one destination leave together.
void InaRail::push_spread(std::size_t i) {
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

void InaRail::count(Bytes datagram) {
  const ina::Header header = ina::decode(datagram.data());
  if (header.kind == static_cast<std::uint8_t>(ina::Kind::kProbe) ||
      header.kind == static_cast<std::uint8_t>(ina::Kind::kFetch)) {
    stats_.sent.control += datagram.size() + kUdpHeaders;
  } else if (header.flags & ina::flag::kRetransmission) {
    stats_.sent.resends += datagram.size() + kUdpHeaders;
  } else {
    stats_.sent.payload += datagram.size() - ina::kHeaderBytes;
  }
}

void InaRail::report(Time now) {
  for (Tree& tree : trees_) {
    while (const auto done = tree.spreader.poll()) tree.endpoint.spread_done(done->slice_id);
    while (auto event = tree.endpoint.poll()) {
      if (const auto* failure = std::get_if<Failure>(&*event)) {
        tree.mismatches += failure->kind == FailureKind::kMismatch;
        listener_.rail_failed(*failure, now);
      } else if (const auto* stalled = std::get_if<ina::Stalled>(&*event)) {
        const Stall stall{.group = tree.endpoint.group(),
                          .first_switch_ok = stalled->first_switch_ok,
                          .root_ok = stalled->root_ok};
        listener_.stalled(stall, now);
      } else {
        part_done(std::get<ina::SliceDone>(*event).id, now);
      }
    }
  }
}

void InaRail::part_done(std::uint64_t id, Time now) {
  const auto done =
      std::find_if(slices_.begin(), slices_.end(), [&](const Progress& p) { return p.slice.id == id; });
  if (done == slices_.end()) return;
  --done->trees_left;
  // A slice that is cut among fewer trees may be quicker than one before it.
  while (!slices_.empty() && slices_.front().trees_left == 0) {
    const Slice slice = slices_.front().slice;
    slices_.pop_front();
    ++stats_.slices;
    stats_.payload_bytes += tensor_bytes(slice.call, slice.count, slice.world_size);
    if (slices_.empty()) stats_.busy += now - busy_since_;
    listener_.slice_done(slice.id, now);
  }
}

RailStats InaRail::stats() const {
  RailStats stats = stats_;
  const DatagramCounts& counts = socket_.counts();
  stats.bytes_sent = counts.bytes_sent;
  stats.bytes_received = counts.bytes_received;
  stats.packets_sent = counts.datagrams_sent;
  stats.packets_received = counts.datagrams_received;
  stats.malformed = counts.strangers;
  stats.send_drops = counts.dropped;
  stats.segmentation_refused = counts.segmentation_refused;
  for (const Tree& tree : trees_) {
    stats.retransmissions += tree.endpoint.stats().retransmissions;
    stats.duplicates += tree.endpoint.stats().duplicates;
    stats.malformed += tree.endpoint.stats().refused_in_all() + tree.spreader.stats().refused_in_all();
    stats.duplicates += tree.spreader.stats().duplicates;
    stats.multicast_bytes += tree.spreader.stats().sent_bytes;
    stats.fetched_bytes += tree.spreader.stats().fetched_bytes;
  }
  if (!slices_.empty()) stats.busy += EventLoop::now() - busy_since_;
  return stats;
}

std::uint64_t InaRail::progress() const {
  std::uint64_t steps = 0;
  for (const Tree& tree : trees_) {
    const spread::SpreaderStats& spread = tree.spreader.stats();
    steps += tree.endpoint.stats().results + spread.received + spread.sent;
  }
  return steps;
}

std::vector<GroupStats> InaRail::groups() const {
  std::vector<GroupStats> all;
  for (const Tree& tree : trees_) {
    const ina::EndpointStats& counts = tree.endpoint.stats();
    const spread::SpreaderStats& spread = tree.spreader.stats();
    all.push_back({.group = tree.endpoint.group(),
                   .slots = tree.endpoint.slots(),
                   .in_flight = tree.endpoint.in_flight(),
                   .window = tree.endpoint.window().size(),
                   .rtt = tree.endpoint.window().smoothed_rtt(),
                   .contributions = counts.contributions,
                   .results = counts.results,
                   .retransmissions = counts.retransmissions,
                   .early_retransmissions = counts.early_retransmissions,
                   .timeouts = counts.timeouts,
                   .stale = counts.stale + spread.stale,
                   .duplicates = counts.duplicates + spread.duplicates,
                   .mismatches = tree.mismatches,
                   .refused = counts.refused_in_all() + spread.refused_in_all(),
                   .probes_sent = counts.probes_sent,
                   .probes_answered = counts.probes_answered,
                   .nonfinite_chunks = counts.nonfinite_chunks,
                   .moves = counts.moves,
                   .error_bound = counts.error_bound,
                   .multicasts = spread.tasks,
                   .multicast_bytes = spread.sent_bytes,
                   .fetched_bytes = spread.fetched_bytes,
                   .answered_bytes = spread.answered_bytes});
  }
  return all;
}

}  // namespace railweave
