// SPDX-License-Identifier: Apache-2.0
#include "load/reception.hpp"

#include <pthread.h>

#include <algorithm>
#include <atomic>
#include <bit>
#include <cstring>
#include <deque>
#include <latch>
#include <semaphore>
#include <span>
#include <stdexcept>
#include <thread>

#include "loop/event_loop.hpp"
#include "loop/thread.hpp"
#include "rails/datagram_socket.hpp"

namespace railweave::load {
namespace {

constexpr std::byte kUnset{0xff};
constexpr spread::Keys kKeys{};
constexpr int kBatchesPerTurn = 16;      // as in the rail
constexpr std::size_t kPerReading = 64;  // datagrams from memory between two readings of the clock
// Data between the sockets: less than the kernel's queues hold, more than the receiver takes at once.
constexpr std::size_t kWindowBytes = std::size_t{1} << 20;
constexpr std::size_t kWindowPackets = 512;  // net.core.netdev_max_backlog is 1,000 and more
constexpr std::size_t kKernelOverhead = 8;
constexpr Duration kLost = 5 * kSecond;

Slice slice_of(Collective collective, DType dtype, std::size_t count, int rank, int world_size,
               const std::byte* input, std::byte* output) {
  return {.id = 0,
          .call = {.op_index = 0,
                   .collective = collective,
                   .dtype = dtype,
                   .op = ReduceOp::kSum,
                   .root = 0,
                   .count = count},
          .input = input,
          .output = output,
          .count = count,
          .stride = 0,
          .rank = rank,
          .world_size = world_size};
}

/// Packets of a batch: as many as fit in kBytes, but at most one per slot of a group.
std::uint32_t batch_of(std::size_t payload_bytes) {
  constexpr std::size_t kBytes = std::size_t{16} << 20;
  const std::size_t fit = kBytes / std::clamp<std::size_t>(payload_bytes, 1, kBytes);
  return static_cast<std::uint32_t>(std::bit_floor(std::min<std::size_t>(fit, ina::kSlots / 2)));
}

ina::EndpointOptions endpoint_options(std::size_t payload_bytes, std::uint16_t group) {
  if (payload_bytes % ina::kLaneBytes != 0) throw std::invalid_argument("a RESULT has lanes of 4 bytes");
  const std::uint32_t slots = batch_of(payload_bytes);
  return {.group = group,
          .child = 0,
          .slots = slots,
          .lanes = static_cast<std::uint32_t>(payload_bytes / ina::kLaneBytes),
          .world_size = 1,
          .window = {.initial = slots, .most = slots}};
}

}  // namespace

/// As float32 the values are integers of 20 bits, which fixed point represents exactly.
Reception::Reception(std::size_t payload_bytes, std::size_t code_bytes)
    : payload_(payload_bytes),
      code_(code_bytes),
      wanted_(batch_of(payload_bytes) * payload_bytes),
      output_(wanted_.size()) {
  for (std::size_t i = 0; i < wanted_.size() / sizeof(float); ++i) {
    const auto value =
        static_cast<float>(static_cast<std::int32_t>(static_cast<std::uint32_t>(i) * 2654435761u) >> 12);
    std::memcpy(&wanted_[i * sizeof value], &value, sizeof value);
  }
}

// ---------------------------------------------------------------- SPREAD

SpreadReception::SpreadReception(std::size_t payload_bytes, std::uint16_t group)
    : Reception(payload_bytes, spread::kCodeBytes), group_(group) {
  std::vector<std::byte> ignored(wanted_.size());
  spread::Spreader root({.group = group, .child = 0, .rank = 0, .world_size = 2, .keys = kKeys});
  Time now = 0;
  root.start(
      1,
      slice_of(Collective::kBroadcast, DType::kUInt8, wanted_.size(), 0, 2, wanted_.data(), ignored.data()),
      payload_, 0, now);
  while (!root.idle()) {
    const spread::Packet packet = root.transmit(now);
    wire_.insert(wire_.end(), packet.bytes.begin(), packet.bytes.end());
    if (packet.bytes.empty()) now = root.deadline();
  }
}

Bytes SpreadReception::next_batch(Time now) {
  std::ranges::fill(output_, kUnset);
  spreader_.emplace(
      spread::SpreaderOptions{.group = group_, .child = 1, .rank = 1, .world_size = 2, .keys = kKeys});
  spreader_->start(
      1, slice_of(Collective::kBroadcast, DType::kUInt8, wanted_.size(), 1, 2, nullptr, output_.data()),
      payload_, 0, now);
  return wire_;
}

bool SpreadReception::placed() { return spreader_->poll() && output_ == wanted_; }

// ---------------------------------------------------------------- RESULT

ResultReception::ResultReception(std::size_t payload_bytes, std::uint16_t group)
    : Reception(payload_bytes, 0), endpoint_(endpoint_options(payload_bytes, group)) {}

Bytes ResultReception::next_batch(Time now) {
  std::ranges::fill(output_, kUnset);
  const std::size_t count = wanted_.size() / sizeof(float);
  endpoint_.start(
      slice_of(Collective::kAllReduce, DType::kFloat32, count, 0, 1, wanted_.data(), output_.data()));
  // Exchanges the exponents first, because only data packets count.
  for (transmit(now); wire_.size() < batch_of(payload_) * datagram_bytes(); transmit(now)) {
    for (Bytes rest = wire_; !rest.empty(); rest = rest.subspan(datagram_bytes()))
      take(rest.first(datagram_bytes()), now);
  }
  return wire_;
}

/// In a group of one, the sums are the contributions.
void ResultReception::transmit(Time now) {
  wire_.clear();
  for (Bytes packet; !(packet = endpoint_.transmit(now)).empty();) {
    wire_.insert(wire_.end(), packet.begin(), packet.end());
    wire_[wire_.size() - packet.size()] =
        std::byte{ina::kVersion << 4 | static_cast<int>(ina::Kind::kResult)};
  }
}

bool ResultReception::placed() { return endpoint_.poll() && endpoint_.idle() && output_ == wanted_; }

// ---------------------------------------------------------------- measuring

namespace {

void check_placed(Reception& reception) {
  if (!reception.placed())
    throw std::runtime_error("a received byte is not in its place, or not what was sent");
}

void take_all(Reception& reception, Bytes rest) {
  const std::size_t size = reception.datagram_bytes();
  while (!rest.empty()) {
    const Time now = EventLoop::now();
    for (std::size_t i = 0; i < kPerReading && !rest.empty(); ++i, rest = rest.subspan(size))
      reception.take(rest.first(size), now);
  }
}

/// Takes batches for `duration` and adds up the time.
template <typename Take>
Reading measure(Reception& reception, Duration duration, const Take& take) {
  Reading reading;
  for (const Time end = EventLoop::now() + duration; EventLoop::now() < end;) {
    const Bytes batch = reception.next_batch(EventLoop::now());
    const Time begin = EventLoop::now(), cpu_begin = thread_time();
    take(batch);
    reading.cpu += thread_time() - cpu_begin;
    reading.clock += EventLoop::now() - begin;
    reading.packets += batch.size() / reception.datagram_bytes();
    check_placed(reception);
  }
  return reading;
}

}  // namespace

Reading receive_from_memory(Reception& reception, Duration duration) {
  return measure(reception, duration, [&](Bytes batch) { take_all(reception, batch); });
}

namespace {

/// Sends batches from its own thread, at most a window ahead of the receiver.
class Feeder {
 public:
  Feeder(std::size_t datagram_bytes, bool super_packets, int cpu)
      : socket_({.address = "127.0.0.1", .interface = ""}, 0),
        size_(datagram_bytes),
        super_packets_(super_packets) {
    thread_ = std::thread([this] { run(); });
    try {
      run_on(thread_.native_handle(), {cpu});
    } catch (...) {
      stop();
      throw;
    }
  }
  ~Feeder() { stop(); }
  Feeder(const Feeder&) = delete;
  Feeder& operator=(const Feeder&) = delete;

  std::uint16_t port() const { return socket_.port(); }
  void send_to(std::uint16_t port) {
    socket_.set_remotes({{"127.0.0.1", port}});
    if (super_packets_) socket_.set_super_packets(~std::size_t{0});
    socket_.set_buffers(kKernelOverhead * kWindowBytes);
  }

  void send(Bytes batch) {
    datagrams_.clear();
    for (; !batch.empty(); batch = batch.subspan(size_)) datagrams_.push_back(batch.first(size_));
    taken_ = 0;
    ready_.release();
  }
  /// Waits until the thread has sent the batch.
  void finish() { sent_.acquire(); }
  /// Says that the receiver has taken `count` datagrams of the batch so far.
  void taken(std::size_t count) { taken_.store(count, std::memory_order_release); }

 private:
  void stop() {
    stopping_ = true;
    ready_.release();
    thread_.join();
  }

  void run() {
    for (ready_.acquire(); !stopping_; ready_.acquire()) {
      for (std::size_t sent = 0; sent < datagrams_.size() && !stopping_;) sent += send_some(sent);
      sent_.release();
    }
  }

  /// Sends at least half a window at a time, so that super-packets are long.
  std::size_t send_some(std::size_t sent) {
    const std::size_t most = super_packets_ ? datagrams_.size() : kWindowPackets;
    const std::size_t window = std::clamp<std::size_t>(kWindowBytes / size_, 2, most);
    const std::size_t left = datagrams_.size() - sent;
    const std::size_t room = taken_.load(std::memory_order_acquire) + window - sent;
    if (room < std::min(left, window / 2)) {
      std::this_thread::yield();
      return 0;
    }
    return socket_.send(std::span(datagrams_).subspan(sent, std::min(left, room)));
  }

  DatagramSocket socket_;
  std::size_t size_;
  bool super_packets_;
  std::vector<Bytes> datagrams_;  // of the batch; the thread uses them from `send` to `finish`
  std::atomic<std::size_t> taken_{0};
  std::atomic<bool> stopping_{false};
  std::counting_semaphore<2> ready_{0};  // a batch, or the end
  std::binary_semaphore sent_{0};
  std::thread thread_;
};

/// Takes datagrams from the socket as the rail does.
class Taker final : public ReadyHandler {
 public:
  Taker(Reception& reception, DatagramSocket& socket, Feeder& feeder)
      : reception_(reception), socket_(socket), feeder_(feeder) {}

  void begin() { count_ = 0; }
  std::size_t count() const { return count_; }

  void on_ready(std::uint32_t, Time now) override {
    for (int i = 0; i < kBatchesPerTurn; ++i) {
      const bool more = socket_.receive([&](Bytes datagram) {
        reception_.take(datagram, now);
        ++count_;
      });
      feeder_.taken(count_);
      if (!more) break;
      now = EventLoop::now();
    }
  }

 private:
  Reception& reception_;
  DatagramSocket& socket_;
  Feeder& feeder_;
  std::size_t count_ = 0;
};

}  // namespace

Reading receive_from_kernel(Reception& reception, Duration duration, bool super_packets, int send_on) {
  EventLoop loop;
  DatagramSocket socket({.address = "127.0.0.1", .interface = ""}, 0);
  Feeder feeder(reception.datagram_bytes(), super_packets, send_on);
  socket.set_remotes({{"127.0.0.1", feeder.port()}});
  socket.set_buffers(kKernelOverhead * kWindowBytes);
  feeder.send_to(socket.port());
  Taker taker(reception, socket, feeder);
  loop.watch(socket.fd(), EPOLLIN, taker);
  return measure(reception, duration, [&](Bytes batch) {
    taker.begin();
    feeder.send(batch);
    const std::size_t count = batch.size() / reception.datagram_bytes();
    for (std::size_t before = 0; taker.count() < count; before = taker.count()) {
      const Time latest = EventLoop::now() + kLost;
      while (taker.count() == before && EventLoop::now() < latest) loop.run_once(latest);
      if (taker.count() == before)
        throw std::runtime_error("datagrams are lost between two sockets of this machine");
    }
    feeder.finish();
  });
}

// ---------------------------------------------------------------- by several workers

namespace {

constexpr std::uint16_t kFirstGroup = 1;
const LocalInterface kLoopback{.address = "127.0.0.1", .interface = ""};

/// One socket per worker on one port, and one socket that fills them.
class DealtSockets {
 public:
  DealtSockets(std::size_t workers, std::size_t groups, std::size_t bytes, bool super_packets)
      : sender_(kLoopback, 0) {
    sockets_.emplace_back(kLoopback, 0);
    while (sockets_.size() < workers) sockets_.push_back(sockets_[0].open_shared());
    for (DatagramSocket& socket : sockets_) {
      socket.set_remotes({{kLoopback.address, sender_.port()}});
      socket.set_buffers(kKernelOverhead * bytes);
    }
    std::vector<std::pair<std::uint16_t, std::uint32_t>> dealt;
    for (std::size_t group = 0; group < groups; ++group)
      dealt.emplace_back(kFirstGroup + group, group % workers);
    if (workers > 1) sockets_[0].steer_by_group(ina::kGroupAt, dealt);
    sender_.set_remotes({{kLoopback.address, sockets_[0].port()}});
    if (super_packets) sender_.set_super_packets(~std::size_t{0});
  }

  void fill(Bytes batch, std::size_t datagram_bytes) {
    std::vector<Bytes> datagrams;
    for (; !batch.empty(); batch = batch.subspan(datagram_bytes))
      datagrams.push_back(batch.first(datagram_bytes));
    for (std::span<const Bytes> rest = datagrams; !rest.empty();) rest = rest.subspan(sender_.send(rest));
  }

  /// Takes all ready datagrams of a worker and returns their number. Drops datagrams for another worker.
  std::size_t take(std::size_t worker, std::span<const std::unique_ptr<Reception>> groups) {
    std::size_t taken = 0;
    for (std::size_t before = ~std::size_t{0}; taken != before;) {
      before = taken;
      const Time now = EventLoop::now();
      sockets_[worker].receive([&](Bytes datagram) {
        ++taken;
        if (datagram.size() < ina::kHeaderBytes) return;
        const std::size_t group = ina::decode(datagram.data()).group - kFirstGroup;
        if (group < groups.size() && group % sockets_.size() == worker) groups[group]->take(datagram, now);
      });
    }
    return taken;
  }

 private:
  DatagramSocket sender_;
  std::deque<DatagramSocket> sockets_;
};

}  // namespace

Reading receive_by_workers(std::span<const std::unique_ptr<Reception>> groups, Duration duration,
                           std::optional<bool> super_packets, const std::vector<int>& cpus) {
  const std::size_t workers = cpus.size();
  const std::size_t size = groups[0]->datagram_bytes();
  std::optional<DealtSockets> sockets;
  if (super_packets)
    sockets.emplace(workers, groups.size(), groups.size() * batch_of(groups[0]->payload_bytes()) * size,
                    *super_packets);
  Reading reading;
  for (const Time end = EventLoop::now() + duration; EventLoop::now() < end;) {
    std::vector<Bytes> batches;
    for (const auto& group : groups) batches.push_back(group->next_batch(EventLoop::now()));
    for (const Bytes batch : batches)
      if (sockets) sockets->fill(batch, size);
    std::vector<Reading> each(workers);
    {
      std::latch go(1);
      std::vector<std::jthread> threads;
      for (std::size_t worker = 0; worker < workers; ++worker) {
        threads.emplace_back([&, worker] {
          go.wait();
          const Time begin = EventLoop::now(), cpu_begin = thread_time();
          if (sockets) each[worker].packets = sockets->take(worker, groups);
          for (std::size_t group = worker; !sockets && group < groups.size(); group += workers) {
            take_all(*groups[group], batches[group]);
            each[worker].packets += batches[group].size() / size;
          }
          each[worker].cpu = thread_time() - cpu_begin;
          each[worker].clock = EventLoop::now() - begin;
        });
      }
      try {
        for (std::size_t worker = 0; worker < workers; ++worker)
          run_on(threads[worker].native_handle(), {cpus[worker]});
      } catch (...) {
        go.count_down();
        throw;
      }
      go.count_down();
    }
    for (const auto& group : groups) check_placed(*group);
    for (const Reading& one : each) reading.packets += one.packets;
    reading.cpu += std::ranges::max(each, {}, &Reading::cpu).cpu;
    reading.clock += std::ranges::max(each, {}, &Reading::clock).clock;
  }
  return reading;
}

}  // namespace railweave::load
