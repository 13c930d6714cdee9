// SPDX-License-Identifier: Apache-2.0
#include "rails/rdma_transport.hpp"

#include <arpa/inet.h>

#include <algorithm>
#include <bit>
#include <cstdio>
#include <limits>
#include <numeric>
#include <stdexcept>
#include <system_error>
#include <utility>

#include "core/lot.hpp"
#include "core/scoped_flag.hpp"
#include "core/timing.hpp"
#include "rails/verbs_device.hpp"

namespace railweave {
namespace {

constexpr int kQuickRepetitions = 6;  // at growing intervals, together about one kRepetition
constexpr int kTireless = std::numeric_limits<int>::max();  // retries until `halt`
constexpr Duration kInFlight = 6 * kMillisecond;            // of link time; more if peers run late
constexpr std::int64_t kMinWindow = 16, kMaxWindow = 256;   // packets
constexpr std::size_t kUnshapedInFlight = 1 << 20;          // bytes: the messages that a ring posts ahead
constexpr std::size_t kShortOnDevices = 2048;               // bytes; a device's receives are locked memory
constexpr Duration kRanksApart = 20 * kMillisecond;         // delay in a ring that is not taken for a loss
constexpr std::size_t kMaxBurst = 65'000;
constexpr std::uint32_t kNumberStep = 10'368'889;  // from one incarnation to the next
constexpr std::uint32_t kFirstDeviceNumber = 2;    // the specification reserves 0 and 1
constexpr std::size_t kRingConnections = 2;        // of a rank: to the next and from the previous rank
constexpr const char* kSameRelease = "install the same railweave on the controller and all hosts";

roce::Ipv4Address parse_address(const std::string& text) {
  in_addr address;
  if (inet_pton(AF_INET, text.c_str(), &address) != 1) {
    throw std::invalid_argument("'" + text +
                                "' is not an IPv4 address: expected the form 10.3.0.1; correct the address");
  }
  return ntohl(address.s_addr);
}

roce::MacAddress parse_mac(const std::string& text) {
  roce::MacAddress mac;
  int end = 0;
  const int found = std::sscanf(text.c_str(), "%2hhx:%2hhx:%2hhx:%2hhx:%2hhx:%2hhx%n", &mac[0], &mac[1],
                                &mac[2], &mac[3], &mac[4], &mac[5], &end);
  if (found != 6 || static_cast<std::size_t>(end) != text.size()) {
    throw std::invalid_argument(
        "'" + text + "' is not a MAC address: expected the form 02:00:00:01:00:0a; correct the MAC");
  }
  return mac;
}

RdmaEndpointOptions endpoint_options(const RdmaTransportOptions& options) {
  std::size_t burst = kMaxBurst;
  if (options.rate_bps > 0) burst = std::min(burst, bytes_in(kPacingQuantum, options.rate_bps));
  return {.interface = options.interface,
          .address = parse_address(options.address),
          .path_mtu = options.path_mtu,
          .burst_bytes = burst};
}

/// Returns how many unanswered retransmissions take about `silence`. They are counted and not timed, so that
/// a process that was not scheduled for a while does not take its own delay for silence.
int retries_for(Duration silence) {
  return static_cast<int>(silence / timing::kRepetition) + kQuickRepetitions;
}

void add_counts(const roce::QueuePairStats& counts, RailStats& stats) {
  stats.retransmissions += counts.retransmissions;
  stats.sent.payload += counts.payload_bytes;
  stats.sent.resends +=
      counts.resent_bytes + counts.retransmissions * (roce::kFrameHeaderSize + roce::kIcrcSize);
  stats.duplicates += counts.duplicates + counts.out_of_order;
  stats.malformed += counts.refused;
}

void add_counts(const SumRing& ring, RailStats& stats) {
  add_counts(ring.out().stats(), stats);
  add_counts(ring.into().stats(), stats);
}

std::int64_t window(const RdmaTransportOptions& options, bool devices) {
  if (options.rate_bps == 0)
    return devices ? kMaxWindow : static_cast<std::int64_t>(kUnshapedInFlight / options.path_mtu);
  const auto packets = static_cast<std::int64_t>(bytes_in(kInFlight, options.rate_bps) / options.path_mtu);
  return std::clamp(packets, kMinWindow, kMaxWindow);
}

}  // namespace

RdmaTransport::RdmaTransport(EventLoop& loop, const RdmaTransportOptions& options, int rank, int world_size)
    : loop_(loop),
      options_(options),
      rank_(rank),
      device_(open_device(world_size)),
      queue_pairs_(static_cast<std::size_t>(world_size)),
      peers_(static_cast<std::size_t>(world_size)) {
  for (int peer = 0; peer < world_size; ++peer) {
    if (peer != rank) queue_pairs_[static_cast<std::size_t>(peer)] = device_->reserve_queue_pair_number();
  }
  if (!options.sums) return;
  for (std::uint32_t* number : {&sum_numbers_.out, &sum_numbers_.into, &sum_numbers_.alias})
    *number = device_->reserve_queue_pair_number();
}

RdmaTransport::~RdmaTransport() {
  if (interest_ != 0) loop_.unwatch(device_->fd());
}

std::string RdmaTransport::mac() const {
  if (endpoint_ == nullptr) return "";
  const roce::MacAddress& mac = endpoint_->mac();
  char text[18];
  std::snprintf(text, sizeof text, "%02x:%02x:%02x:%02x:%02x:%02x", mac[0], mac[1], mac[2], mac[3], mac[4],
                mac[5]);
  return text;
}

std::string RdmaTransport::where() const {
  return device_->where() + (why_no_device_.empty() ? "" : ": " + why_no_device_);
}

std::unique_ptr<RdmaDevice> RdmaTransport::open_device(int world_size) {
  if (options_.place != RdmaPlace::kUserSpace) {
    try {
      return open_verbs_device(
          {.address = options_.address,
           .path_mtu = options_.path_mtu,
           .silence = options_.liveness.timeout,
           .traffic_class = options_.traffic_class,
           .connections = static_cast<std::size_t>(world_size - 1) + (options_.sums ? kRingConnections : 0)});
    } catch (const std::runtime_error& error) {
      if (options_.place == RdmaPlace::kDevice) throw;
      why_no_device_ = error.what();
    }
  }
  auto made = std::make_unique<RdmaEndpoint>(endpoint_options(options_));
  endpoint_ = made.get();
  return made;
}

// ---------------------------------------------------------------- joining

std::uint32_t first_packet_number(std::uint32_t first, std::uint32_t incarnation) {
  return (first + incarnation * kNumberStep) & roce::kPsnMask;
}

// Adds a multiple of the step, modulo the count of free numbers. The step and this count are coprime.
std::uint32_t queue_pair_number(std::uint32_t first, std::uint32_t incarnation) {
  constexpr std::uint64_t kFirst = kFirstFreeNumber, kNumbers = (1 << 24) - kFirst;
  static_assert(std::gcd(kNumberStep, kNumbers) == 1);
  return static_cast<std::uint32_t>(kFirst +
                                    (first - kFirst + incarnation * std::uint64_t{kNumberStep}) % kNumbers);
}

void RdmaTransport::connect(const Key& key, const std::vector<RdmaMember>& members, Time now) {
  if (members.size() != queue_pairs_.size()) {
    throw std::invalid_argument(std::to_string(members.size()) + " members for a world of " +
                                std::to_string(queue_pairs_.size()) + ": expected one per rank; " +
                                kSameRelease);
  }
  std::vector<Way> ways(members.size());
  for (std::size_t peer = 0; peer < members.size(); ++peer) {
    const RdmaMember& member = members[peer];
    if (static_cast<int>(peer) == rank_) continue;
    const std::string name = "rank " + std::to_string(peer) + " at " + member.address;
    if (member.queue_pairs.size() != members.size()) {
      throw std::invalid_argument(name + " offers " + std::to_string(member.queue_pairs.size()) +
                                  " queue pairs to a world of " + std::to_string(members.size()) +
                                  ": expected one per rank; " + kSameRelease);
    }
    const std::uint32_t theirs = member.queue_pairs[static_cast<std::size_t>(rank_)];
    const std::uint32_t least = member.device ? kFirstDeviceNumber : kFirstFreeNumber;
    if (theirs < least || theirs > roce::kPsnMask) {
      throw std::invalid_argument(name + " offers queue pair " + std::to_string(theirs) + ": expected " +
                                  std::to_string(least) + " to " + std::to_string(roce::kPsnMask) + "; " +
                                  kSameRelease);
    }
    ways[peer] = {.address = parse_address(member.address),
                  .mac = on_device() ? roce::MacAddress{} : parse_mac(member.mac),
                  .queue_pair = theirs,
                  .keeps_number = member.device,
                  .name = name};
  }
  key_ = key;
  ways_ = std::move(ways);
  devices_ = std::any_of(members.begin(), members.end(), [](const RdmaMember& one) { return one.device; });
  interest_ = EPOLLIN;
  loop_.watch(device_->fd(), interest_, *this);
  join(0, now);
}

void RdmaTransport::sum(const std::vector<SumNumbers>& members, std::size_t window_packets,
                        std::function<void(Time)> moved) {
  if (!options_.sums || !ways_.empty())
    throw std::invalid_argument("a transport that offers sums learns of them before it connects");
  if (members.size() != queue_pairs_.size() || members.size() < 2 || !std::has_single_bit(window_packets))
    throw std::invalid_argument(
        std::to_string(members.size()) + " members and a window of " + std::to_string(window_packets) +
        " packets for a world of " + std::to_string(queue_pairs_.size()) +
        ": expected 2 members or more, one per rank, and a power of two; " + kSameRelease);
  for (const SumNumbers& member : members)
    for (const std::uint32_t number : {member.out, member.into, member.alias})
      if (number < kFirstDeviceNumber || number > roce::kPsnMask)
        throw std::invalid_argument("queue pair " + std::to_string(number) + ": expected " +
                                    std::to_string(kFirstDeviceNumber) + " to " +
                                    std::to_string(roce::kPsnMask) + "; " + kSameRelease);
  sums_ = members;
  window_packets_ = window_packets;
  ring_moved_ = std::move(moved);
}

void RdmaTransport::restart(std::uint32_t incarnation, Time now) {
  if (ways_.empty() || running_) throw std::logic_error("queue pairs are restarted after they were halted");
  if (incarnation <= incarnation_)
    throw std::logic_error("queue pairs were in incarnation " + std::to_string(incarnation_) +
                           " before they are to restart as " + std::to_string(incarnation));
  drop_halted();
  if (endpoint_ != nullptr && endpoint_->outdated()) follow_interface();
  join(incarnation, now);
}

void RdmaTransport::follow_interface() {
  const auto old = endpoint_->reopen();
  loop_.unwatch(old->fd());
  interest_ = EPOLLIN;
  loop_.watch(device_->fd(), interest_, *this);
}

void RdmaTransport::join(std::uint32_t incarnation, Time now) {
  for (const std::uint32_t number : silenced_) device_->release(number);
  silenced_ = incarnation > 0 ? numbers(incarnation_) : std::vector<std::uint32_t>{};
  incarnation_ = incarnation;
  check_.restart();
  first_answer_by_ = incarnation == 0 ? now + timing::kFirstTimeout : now;
  running_ = true;
  failed_ = false;
  for (std::size_t peer = 0; peer < ways_.size(); ++peer)
    if (static_cast<int>(peer) != rank_) meet(peer, now);
  if (!sums_.empty()) join_ring(now);
  if (options_.liveness.interval > 0) heartbeat_at_ = now + options_.liveness.interval;
  // At the first join, messages are retried until the peer is there. A restarted rail waits for all answers.
  if (incarnation > 0) for_each_peer([](RdmaPeer& peer) { peer.probe(); });
  pump(now);
}

std::size_t RdmaTransport::short_bytes() const { return devices_ ? kShortOnDevices : kMostShort; }

roce::QueuePairOptions RdmaTransport::pair_options() const {
  roce::QueuePairOptions options;
  options.window = window(options_, devices_);
  if (options_.rate_bps > 0) options.window_time = kInFlight;
  return options;
}

roce::MacAddress RdmaTransport::mac_of(const Way& way) const {
  // The kernel knows the MAC of a peer's new interface, because heartbeats have passed before a restart.
  return incarnation_ == 0 || endpoint_ == nullptr ? way.mac
                                                   : endpoint_->neighbour(way.address).value_or(way.mac);
}

std::uint32_t RdmaTransport::own_number(std::size_t peer, std::uint32_t incarnation) const {
  return on_device() ? queue_pairs_[peer] : queue_pair_number(queue_pairs_[peer], incarnation);
}

Key RdmaTransport::key_between(int sender, int receiver) const {
  std::array<std::byte, sizeof sender + sizeof receiver + sizeof incarnation_> ends;
  store_fields(ends.data(), sender, receiver, incarnation_);
  return authenticate(key_, ends);
}

// Both ends compute a connection's first packet number from the sender's queue pair number in incarnation 0.
// It differs from the previous incarnation's.
void RdmaTransport::meet(std::size_t peer, Time now) {
  const Way& way = ways_[peer];
  const bool first = incarnation_ == 0;
  const Duration timeout = options_.liveness.timeout;
  const int patience = retries_for(std::max(timing::kFirstTimeout, timeout));
  roce::QueuePairOptions options = pair_options();
  options.qpn = own_number(peer, incarnation_);
  options.peer_qpn = way.keeps_number ? way.queue_pair : queue_pair_number(way.queue_pair, incarnation_);
  options.send_psn = first_packet_number(queue_pairs_[peer], incarnation_);
  options.receive_psn = first_packet_number(way.queue_pair, incarnation_);
  options.max_timeout = first ? timing::kRepetition : timing::kProbeInterval;
  options.retries = first ? patience : kTireless;
  RdmaConnection& connection = device_->join(options, way.address, mac_of(way), now);
  TransportListener& listener = *this;
  peers_[peer] =
      std::make_unique<RdmaPeer>(RdmaPeerOptions{.rank = static_cast<int>(peer),
                                                 .name = way.name,
                                                 .short_bytes = short_bytes(),
                                                 .retries = timeout > 0 ? retries_for(timeout) : patience,
                                                 .max_timeout = timing::kRepetition,
                                                 .own_key = key_between(rank_, static_cast<int>(peer)),
                                                 .key = key_between(static_cast<int>(peer), rank_)},
                                 check_, connection, listener);
}

// The switch counts packets from the queue pair number of the sender's end. A late rank looks like a loss, so
// retries are unlimited. The other connections notice if a rank is gone.
void RdmaTransport::join_ring(Time now) {
  const auto own = static_cast<std::size_t>(rank_);
  const std::size_t next = (own + 1) % sums_.size(), before = (own + sums_.size() - 1) % sums_.size();
  const auto first_psn = [this](std::size_t sender) {
    return static_cast<std::uint32_t>((sums_[sender].out + next_packet_) & roce::kPsnMask);
  };
  roce::QueuePairOptions options = pair_options();
  options.window = std::min({options.window, kMaxWindow, static_cast<std::int64_t>(window_packets_)});
  options.min_window = std::min(options.min_window, options.window);
  options.window_time = 0;  // fixed: all wait for the last rank, and more would only fill the links' queues
  options.retries = kTireless;
  options.min_timeout = kRanksApart;
  options.summed = true;
  options.qpn = sums_[own].out;
  options.peer_qpn = sums_[next].alias;
  options.send_psn = first_psn(own);
  RdmaConnection& out = device_->join(options, ways_[next].address, mac_of(ways_[next]), now);
  options.qpn = sums_[own].into;
  options.peer_qpn = sums_[before].out;
  options.send_psn = 0;
  options.receive_psn = first_psn(before);
  RdmaConnection& into = device_->join(options, ways_[before].address, mac_of(ways_[before]), now);
  TransportListener& listener = *this;
  sum_ring_ = std::make_unique<SumRing>(SumRingOptions{.path_mtu = options_.path_mtu,
                                                       .window_packets = window_packets_,
                                                       .next_packet = next_packet_,
                                                       .next_rank = static_cast<int>(next),
                                                       .rank_before = static_cast<int>(before),
                                                       .next_name = ways_[next].name,
                                                       .name_before = ways_[before].name,
                                                       .impatient = devices_},
                                        out, into, listener);
}

std::vector<std::uint64_t> RdmaTransport::positions() const {
  if (sums_.empty()) return {};
  return {sum_ring_ ? sum_ring_->next_packet() : next_packet_};
}

void RdmaTransport::set_positions(const std::vector<std::uint64_t>& positions) {
  const std::vector<std::uint64_t> own = this->positions();
  if (positions.size() != own.size() || (!own.empty() && positions[0] < own[0]))
    throw std::invalid_argument("packets go on from the greatest number of all ranks");
  if (!positions.empty()) next_packet_ = positions[0];
}

bool RdmaTransport::all_answered() const {
  return std::all_of(peers_.begin(), peers_.end(),
                     [](const auto& peer) { return !peer || peer->answered(); });
}

void RdmaTransport::check_joined(Time now) {
  if (joined_ || !running_ || failed_) return;
  if (incarnation_ > 0 && !all_answered()) return;
  joined_ = true;
  if (listener_ != nullptr) listener_->joined(now);
}

void RdmaTransport::halt(Time) {
  running_ = joined_ = false;
  failed_ = true;
  heartbeat_at_ = kNever;
  for (auto& peer : peers_) {
    if (!peer) continue;
    peer->halt();
    add_counts(peer->connection().stats(), past_);
    const auto place = static_cast<std::size_t>(&peer - peers_.data());
    halted_.push_back({.peer = std::move(peer), .number = own_number(place, incarnation_)});
  }
  if (sum_ring_) {
    sum_ring_->halt();
    add_counts(*sum_ring_, past_);
    next_packet_ = sum_ring_->next_packet();
    halted_ring_ = std::move(sum_ring_);
  }
  for (const std::uint32_t next : numbers(incarnation_ + 1)) {
    device_->expect(next);  // a peer may restart first
    silenced_.push_back(next);
  }
}

std::vector<std::uint32_t> RdmaTransport::numbers(std::uint32_t incarnation) const {
  std::vector<std::uint32_t> numbers;
  for (std::size_t peer = 0; peer < ways_.size(); ++peer)
    if (static_cast<int>(peer) != rank_) numbers.push_back(own_number(peer, incarnation));
  return numbers;
}

void RdmaTransport::drop_halted() {
  for (Halted& halted : halted_) {
    halted.peer.reset();  // before its queue pair
    device_->disconnect(halted.number);
  }
  halted_.clear();
  if (!halted_ring_) return;
  halted_ring_.reset();
  for (const std::uint32_t number : {sum_numbers_.out, sum_numbers_.into}) device_->disconnect(number);
}

template <typename Action>
void RdmaTransport::for_each_peer(const Action& action) const {
  for (const auto& peer : peers_) {
    if (peer) action(*peer);
  }
}

/// A missing interface shows as an error of its socket. The error is ignored before the join is complete. At
/// the first join it is also ignored until all peers have answered, for at most kFirstTimeout.
template <typename Work>
void RdmaTransport::guarded(const Work& work, Time now) {
  try {
    work();
  } catch (const std::system_error& error) {
    if (!joined_ || (now < first_answer_by_ && !all_answered())) return;
    failed({.kind = FailureKind::kSilent,
            .rank = -1,
            .message = "interface '" + options_.interface + "': " + error.what()},
           now);
  }
}

void RdmaTransport::on_ready(std::uint32_t events, Time now) {
  if (events & EPOLLOUT) device_->on_writable();
  guarded([&] { device_->receive(now); }, now);
  pump(now);
}

Time RdmaTransport::deadline() const {
  if (!halted_.empty() || halted_ring_) return 0;  // now: `expire` frees them, outside their own functions
  return std::min({device_->deadline(), heartbeat_at_, overdue_at_});
}

void RdmaTransport::expire(Time now) {
  drop_halted();
  if (device_->deadline() <= now) device_->expire(now);
  if (heartbeat_at_ <= now) {
    heartbeat_at_ = now + options_.liveness.interval;
    for_each_peer([](RdmaPeer& peer) { peer.heartbeat(); });
  }
  if (overdue_at_ <= now) {
    bool awaited = false;
    for_each_peer([&awaited](RdmaPeer& peer) { awaited = peer.clear_overdue() || awaited; });
    overdue_at_ = awaited ? now + timing::kOverdue : kNever;
  }
  pump(now);
}

/// Sends and handles completions until nothing is left, including requests posted from inside a completion.
void RdmaTransport::pump(Time now) {
  if (pumping_) return;
  move_all(now);
  check_joined(now);
  set_interest();
}

void RdmaTransport::move_all(Time now) {
  const ScopedFlag pumping(pumping_);
  bool any = true;
  while (any) {
    any = false;
    for_each_peer([&](RdmaPeer& peer) { any = peer.drain(now) || any; });
    if (sum_ring_ && sum_ring_->drain(now)) {
      any = true;
      ring_moved_(now);
    }
    if (closing_ && (!sum_ring_ || sum_ring_->idle())) {
      any = true;
      closing_ = false;
      for_each_peer([](RdmaPeer& peer) { peer.close(); });
    }
    guarded([&] { device_->transmit(now); }, now);
  }
}

void RdmaTransport::set_interest() {
  const std::uint32_t wanted = EPOLLIN | (device_->blocked() ? EPOLLOUT : 0u);
  if (interest_ == 0 || interest_ == wanted) return;
  interest_ = wanted;
  loop_.rewatch(device_->fd(), interest_, *this);
}

void RdmaTransport::begin(const MessageLabel& label, Time now) {
  check_.begin(label);
  skip_call(now);
}

void RdmaTransport::skip_call(Time now) {
  for_each_peer([&](RdmaPeer& peer) { peer.check_waiting(now); });
}

/// Heartbeats leave once per interval, so a living peer is heard within two intervals.
bool RdmaTransport::heard_recently(int rank, Time now) const {
  const auto& peer = peers_.at(static_cast<std::size_t>(rank));
  return peer && now - peer->heard_at() < 2 * options_.liveness.interval;
}

void RdmaTransport::post_send(int peer, Bytes data, Time now) {
  if (const auto& to = peers_[static_cast<std::size_t>(peer)]) to->post_send(data, now);
  pump(now);
}

void RdmaTransport::post_receive(int peer, MutableBytes into, Time now) {
  if (const auto& from = peers_[static_cast<std::size_t>(peer)]) from->post_receive(into, now);
  if (overdue_at_ == kNever && into.size() <= short_bytes()) overdue_at_ = now + timing::kOverdue;
  pump(now);
}

void RdmaTransport::failed(const Failure& failure, Time now) {
  if (!std::exchange(failed_, true)) listener_->failed(failure, now);
}

void RdmaTransport::announce(const Failure& failure, Time now) {
  failed_ = true;
  heartbeat_at_ = kNever;
  for_each_peer([&](RdmaPeer& peer) { peer.announce(failure); });
  pump(now);
}

void RdmaTransport::abort() {
  failed_ = true;
  heartbeat_at_ = kNever;
  for_each_peer([](RdmaPeer& peer) { peer.abort(); });
  if (sum_ring_) sum_ring_->halt();  // else it would send forever: the others add nothing
}

void RdmaTransport::close(Time now) {
  closing_ = true;
  pump(now);
}

bool RdmaTransport::closed() const {
  const auto closed = [](const auto& peer) { return !peer || peer->closed(); };
  return !closing_ && std::all_of(peers_.begin(), peers_.end(), closed);
}

RailStats RdmaTransport::stats() const {
  const RdmaEndpointStats& wire = device_->stats();
  RailStats stats = past_;
  stats.bytes_sent = wire.bytes_sent;
  stats.bytes_received = wire.bytes_received;
  stats.packets_sent = wire.frames_sent;
  stats.packets_received = wire.frames_received;
  stats.malformed += wire.refused + wire.strangers;
  stats.segmentation_refused = wire.segmentation_refused;
  for_each_peer([&stats](const RdmaPeer& peer) { add_counts(peer.connection().stats(), stats); });
  if (sum_ring_) add_counts(*sum_ring_, stats);
  return stats;
}

}  // namespace railweave
