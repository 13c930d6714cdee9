// SPDX-License-Identifier: Apache-2.0
#include "rails/ina_rail.hpp"

#include <algorithm>
#include <stdexcept>
#include <utility>
#include <variant>

#include "core/lot.hpp"

namespace railweave {

/// TCP and UDP use the same port, because a rank offers only one port. The control connections have no
/// time-outs. They depend on the same switch as the rail, so their silence does not show that a peer is gone.
InaRail::Opened InaRail::open(EventLoop& loop, const InaRailOptions& options) {
  const LocalInterface local{.address = options.address, .interface = options.interface};
  return on_one_port([&] {
    DatagramSocket socket(local, 0);
    auto control = std::make_unique<TcpTransport>(
        loop, TcpTransportOptions{
                  .local = local, .port = socket.port(), .liveness = {.timeout = 0, .interval = 0}});
    return Opened{std::move(socket), std::move(control)};
  });
}

InaRail::InaRail(EventLoop& loop, const InaRailOptions& options, RailListener& listener)
    : InaRail(loop, options, listener, open(loop, options)) {}

InaRail::InaRail(EventLoop& loop, const InaRailOptions& options, RailListener& listener, Opened opened)
    : RingRail(&loop, std::move(opened.control), listener, {.rate_bps = options.rate_bps},
               [this](Transport& transport, const Slice& slice) { return choose(transport, slice); }),
      loop_(loop),
      options_(options),
      control_(static_cast<TcpTransport&>(transport())) {
  sockets_.push_back(std::move(opened.socket));
  sockets_[0].set_super_packets(options.rate_bps > 0 ? bytes_in(kPacingQuantum, options.rate_bps)
                                                     : ~std::size_t{0});
}

void InaRail::compose(MemberRing ring, std::uint32_t lanes) {
  control_.add_peers(ring.peers());
  composed_options_.lanes = lanes;
  composed_options_.start_in_rack = [this](const Slice& slice, Time now) { start_in_trees(slice, now); };
  ring_ = std::move(ring);
  yield();  // racks sum ahead while they wait for the ring
}

std::unique_ptr<Algorithm> InaRail::choose(Transport& transport, const Slice& slice) {
  if (slice.call.collective != Collective::kAllReduce || !ina::carries(slice.call)) return nullptr;
  auto made = std::make_unique<ina::ComposedAllReduce>(transport, *ring_, slice, composed_options_, counts_);
  composed_ = made.get();
  return made;
}

void InaRail::attach(const std::vector<InaGroup>& groups, const std::vector<SocketAddress>& members,
                     int roots, const InaWorkers& workers, const std::optional<InaProof>& proof) {
  if (!places_.empty()) throw std::invalid_argument("the rail is attached already");
  if (groups.empty()) throw std::invalid_argument("an in-network rail has at least one tree");
  for (const InaGroup& group : groups)
    if (group.lanes != groups[0].lanes) throw std::invalid_argument("the rail's trees differ in lanes");
  InaTreesOptions options{.rate_bps = options_.rate_bps,
                          .spread_rate_bps = options_.rate_bps / groups.size(),
                          .roots = roots,
                          .window = options_.window};
  if (proof) {
    options.secret = proof->secret;
    options.place = proof->place;
    options.redo_within = proof->redo_within;
  }
  ReadyHandler& handler = *this;
  const std::size_t parts = std::clamp<std::size_t>(workers.cpus.size(), 1, groups.size());
  options.step = parts;
  try {
    while (sockets_.size() < parts) sockets_.push_back(sockets_[0].open_shared());
    for (std::size_t part = 0; part < parts; ++part) {
      options.first_tree = part;
      std::vector<InaGroup> dealt;
      for (std::size_t tree = part; tree < groups.size(); tree += parts) dealt.push_back(groups[tree]);
      if (parts == 1) {
        own_ = std::make_unique<InaTrees>(loop_, handler, sockets_[0], options, dealt, members);
      } else {
        workers_.push_back(std::make_unique<InaWorker>(workers.cpus[part], workers.spin, sockets_[part],
                                                       options, dealt, members, loop_,
                                                       [this] { report(EventLoop::now()); }));
      }
    }
    for (const InaGroup& group : groups) places_.push_back({group.group});
    steer_by_group();
  } catch (...) {
    places_.clear();
    workers_.clear();
    own_.reset();
    while (sockets_.size() > 1) sockets_.pop_back();
    throw;
  }
  data_lanes_ = ina::data_lanes(groups[0].lanes, proof.has_value());
}

void InaRail::run(std::size_t part, Time now, const InaWorker::Task& task) const {
  if (own_) return task(*own_, now);
  workers_[part]->run(task);
}

/// Gives each worker's socket the datagrams for the groups of its trees.
void InaRail::steer_by_group() const {
  if (own_) return;
  std::vector<std::pair<std::uint16_t, std::uint32_t>> sockets;
  for (std::size_t tree = 0; tree < places_.size(); ++tree) {
    sockets.emplace_back(places_[tree].group, part_of(tree));
    if (places_[tree].left) sockets.emplace_back(*places_[tree].left, part_of(tree));
  }
  sockets_[0].steer_by_group(ina::kGroupAt, sockets);
}

std::size_t InaRail::tree_of(std::uint16_t group) const {
  const auto place = std::ranges::find(places_, group, &Place::group);
  if (place == places_.end())
    throw std::invalid_argument("this rail has no tree of group " + std::to_string(group));
  return static_cast<std::size_t>(place - places_.begin());
}

std::uint64_t InaRail::pause(std::uint16_t group, Time now) {
  const std::size_t tree = tree_of(group);
  std::uint64_t position = 0;
  run(part_of(tree), now, [&](InaTrees& trees, Time at) { position = trees.pause(within(tree), at); });
  return position;
}

void InaRail::resume(std::uint16_t old_group, const InaGroup& group, std::uint64_t resume_from, Time now) {
  const std::size_t tree = tree_of(old_group);
  run(part_of(tree), now,
      [&](InaTrees& trees, Time at) { trees.resume(within(tree), group, resume_from, at); });
  places_[tree] = {.group = group.group, .left = old_group};
  steer_by_group();
  report(now);
}

void InaRail::do_start(const Slice& slice, Time now) {
  if (has_failed() || showing_label()) return;
  if (left_ >= 0) begin_grace(now);
  ring_ ? RingRail::do_start(slice, now) : start_in_trees(slice, now);
}

void InaRail::start_in_trees(const Slice& slice, Time now) {
  if (places_.empty())
    throw std::logic_error("an in-network rail must be attached to a group before slices start");
  if (slices_.empty()) busy_since_ = now;
  const std::size_t step = ina::tree_elements(slice, data_lanes_, places_.size());
  slices_.push_back({.slice = slice, .trees_left = (slice.count + step - 1) / step});
  for (std::size_t tree = 0, at = 0; at < slice.count; ++tree, at += step) {
    Slice part = slice;
    part.input += at * item_size(slice.call.dtype);
    part.output += at * item_size(slice.call.dtype);
    part.count = std::min(step, slice.count - at);
    if (own_) {
      own_->start(tree, part);
    } else {
      workers_[part_of(tree)]->later([tree = within(tree), part](InaTrees& trees, Time at) {
        trees.start(tree, part);
        trees.flush(at);
      });
    }
  }
  if (own_) own_->flush(now);
}

Time InaRail::do_deadline() const {
  const Time trees = own_ ? own_->deadline() : kNever;
  return std::min({trees, RingRail::do_deadline(), show_until_, grace_until_});
}

void InaRail::do_expire(Time now) {
  if (own_ && own_->deadline() <= now) own_->expire(now);
  report(now);
  if (RingRail::do_deadline() <= now) RingRail::do_expire(now);
  if (show_until_ <= now) blame_switch(now);
  if (grace_until_ <= now) end_grace(now);
}

void InaRail::do_abort() {
  if (own_) own_->abort();
  for (const auto& worker : workers_) {
    worker->run([](InaTrees& trees, Time) { trees.abort(); });
    worker->stop();
  }
  slices_.clear();
  RingRail::do_abort();
  stop_waiting();
}

void InaRail::do_halt(Time now) {
  halt_trees(now);
  RingRail::do_halt(now);
  stop_waiting();
}

void InaRail::halt_trees(Time now) {
  if (!slices_.empty()) stats_.busy += now - busy_since_;
  if (own_) own_->halt();
  for (const auto& worker : workers_) {
    worker->run([](InaTrees& trees, Time) { trees.halt(); });
    worker->forget();
  }
  slices_.clear();
}

void InaRail::do_restart(const Restart& restart, Time now) {
  if (in_trees()) restart_trees(restart.bases, now);
  RingRail::do_restart({.incarnation = restart.incarnation, .bases = {}}, now);
  left_ = -1;
}

void InaRail::restart_trees(const std::vector<std::uint64_t>& bases, Time now) {
  if (bases.size() != places_.size())
    throw std::invalid_argument(std::to_string(bases.size()) + " bases for " +
                                std::to_string(places_.size()) + " trees");
  const std::vector<std::uint64_t> own = do_next_chunks();
  for (std::size_t i = 0; i < own.size(); ++i)
    if (bases[i] < own[i])
      throw std::invalid_argument(
          "tree " + std::to_string(i) + " restarts at the greatest next chunk of all ranks; " +
          std::to_string(bases[i]) + " is below this rank's own, " + std::to_string(own[i]));
  for (const auto& worker : workers_) worker->resume();
  for (std::size_t part = 0; part < parts(); ++part)
    run(part, now, [](InaTrees& trees, Time) { trees.follow_interface(); });
  steer_by_group();
  for (std::size_t part = 0; part < parts(); ++part) {
    std::vector<std::uint64_t> own_bases;
    for (std::size_t tree = part; tree < own.size(); tree += parts()) own_bases.push_back(bases[tree]);
    run(part, now, [&](InaTrees& trees, Time at) { trees.restart(own_bases, at); });
  }
}

std::vector<std::uint64_t> InaRail::do_next_chunks() const {
  if (!in_trees()) return {0};
  std::vector<std::uint64_t> next(places_.size());
  for (std::size_t tree = 0; tree < next.size(); ++tree)
    run(part_of(tree), 0, [&](InaTrees& trees, Time) { next[tree] = trees.next_chunk(within(tree)); });
  return next;
}

void InaRail::on_ready(std::uint32_t events, Time now) {
  own_->on_ready(events, now);
  report(now);
}

/// Passes on a datagram that the kernel gave to the wrong part. The first tree counts packets of unknown
/// groups.
void InaRail::pass_on(Stray stray) {
  const std::uint16_t group = ina::decode(stray.datagram.data()).group;
  const auto of = std::ranges::find_if(
      places_, [&](const Place& place) { return place.group == group || place.left == group; });
  const std::size_t tree = of == places_.end() ? 0 : static_cast<std::size_t>(of - places_.begin());
  workers_[part_of(tree)]->later(
      [datagram = std::move(stray.datagram)](InaTrees& trees, Time at) { trees.take(datagram, at); });
}

void InaRail::report(Time now) {
  for (std::size_t part = 0; part < parts(); ++part) {
    while (auto event = own_ ? own_->poll() : workers_[part]->poll()) {
      if (const auto* failure = std::get_if<Failure>(&*event)) {
        trees_failed(*failure, now);
      } else if (const auto* stall = std::get_if<Stall>(&*event)) {
        listener_.stalled(*stall, now);
      } else if (auto* stray = std::get_if<Stray>(&*event)) {
        pass_on(std::move(*stray));
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
  // A slice on fewer trees may be complete before an earlier slice.
  while (!slices_.empty() && slices_.front().trees_left == 0) {
    const Slice slice = slices_.front().slice;
    slices_.pop_front();
    trees_done(slice, now);
  }
}

void InaRail::trees_done(const Slice& slice, Time now) {
  if (ring_) {
    composed_->rack_done();
    return advance(now);
  }
  ++stats_.slices;
  stats_.payload_bytes += tensor_bytes(slice.call, slice.count, slice.world_size);
  if (slices_.empty()) stats_.busy += now - busy_since_;
  listener_.slice_done(slice.id, now);
}

RailStats InaRail::do_stats() const {
  const RailStats control = RingRail::do_stats();
  RailStats stats = ring_ ? RailStats{} : stats_;
  for (std::size_t part = 0; part < parts(); ++part)
    run(part, 0, [&](InaTrees& trees, Time) { trees.add_to(stats); });
  if (ring_) {
    stats.slices = control.slices;
    stats.payload_bytes = control.payload_bytes;
    stats.busy = control.busy;
    stats.rings = counts_.rings;
    stats.ring_messages = counts_.messages;
  } else if (!slices_.empty()) {
    stats.busy += EventLoop::now() - busy_since_;
  }
  stats.bytes_sent += control.bytes_sent;
  stats.sent += control.sent;
  if (control.sent.payload == 0) stats.sent.control += control.bytes_sent - control.sent.sum();
  stats.bytes_received += control.bytes_received;
  stats.packets_sent += control.packets_sent;
  stats.packets_received += control.packets_received;
  stats.malformed += control.malformed;
  return stats;
}

std::uint64_t InaRail::do_progress() const {
  std::uint64_t steps = RingRail::do_progress() + (own_ ? own_->progress() : 0);
  for (const auto& worker : workers_) steps += worker->progress();
  return steps;
}

std::vector<GroupStats> InaRail::groups() const {
  std::vector<GroupStats> all(places_.size());
  for (std::size_t tree = 0; tree < all.size(); ++tree)
    run(part_of(tree), 0, [&](InaTrees& trees, Time) { all[tree] = trees.group_stats(within(tree)); });
  return all;
}

}  // namespace railweave
