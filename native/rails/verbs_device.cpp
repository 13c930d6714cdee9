// SPDX-License-Identifier: Apache-2.0
#include "rails/verbs_device.hpp"

#include <stdexcept>

#if __has_include(<infiniband/verbs.h>)

#include <arpa/inet.h>
#include <fcntl.h>
#include <sys/epoll.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>
#include <map>

#include "core/descriptor.hpp"
#include "rails/verbs_queue_pair.hpp"

namespace railweave {
namespace {

constexpr std::size_t kMostGids = 256, kBatch = 32;
// The ACK timeout is 4.096 us * 2^n, for these n 67 ms and 8.6 s. With its retries, a device gives up after
// seven times the timeout. Some devices round the timeout up.
constexpr int kLeastTimeout = 14, kMostTimeout = 21;

struct Destroy {
  void operator()(ibv_context* context) const { verbs().close_device(context); }
  void operator()(ibv_comp_channel* channel) const { verbs().destroy_comp_channel(channel); }
  void operator()(ibv_cq* queue) const { verbs().destroy_cq(queue); }
};
using Context = std::unique_ptr<ibv_context, Destroy>;

std::uint8_t timeout_for(Duration silence) {
  if (silence <= 0) return kMostTimeout;
  const auto units = static_cast<std::uint64_t>(silence / 8 / 4096);
  return static_cast<std::uint8_t>(
      std::clamp(static_cast<int>(std::bit_width(units)) - 1, kLeastTimeout, kMostTimeout));
}

/// Returns the entry of `table` with the RoCEv2 GID ::ffff:ADDRESS, or null.
const ibv_gid_entry* find_gid(ibv_context* context, const in_addr& address,
                              std::array<ibv_gid_entry, kMostGids>& table) {
  ibv_gid wanted{};
  wanted.raw[10] = wanted.raw[11] = 0xff;
  std::memcpy(wanted.raw + 12, &address, sizeof address);
  const ssize_t count = verbs().query_gid_table(context, table.data(), table.size(), 0, sizeof table[0]);
  const auto end = table.begin() + std::max<ssize_t>(count, 0);
  const auto found = std::find_if(table.begin(), end, [&wanted](const ibv_gid_entry& entry) {
    return entry.gid_type == IBV_GID_TYPE_ROCE_V2 &&
           std::memcmp(entry.gid.raw, wanted.raw, sizeof wanted.raw) == 0;
  });
  return found == end ? nullptr : &*found;
}

/// Opens the device that has the address. Fills in name, port and GID index in `port`.
Context find_device(const VerbsOptions& options, VerbsPort& port) {
  in_addr address;
  if (inet_pton(AF_INET, options.address.c_str(), &address) != 1)
    throw std::invalid_argument("'" + options.address +
                                "' is not an IPv4 address: expected the form 10.3.0.1; correct the address");
  int count = 0;
  ibv_device** all = verbs().get_device_list(&count);
  const std::unique_ptr<ibv_device*, void (*)(ibv_device**)> list(all, verbs().free_device_list);
  std::string others;
  for (int i = 0; all != nullptr && i < count; ++i) {
    const std::string name = verbs().get_device_name(all[i]);
    others += (others.empty() ? "" : ", ") + name;
    Context context(verbs().open_device(all[i]));
    if (!context) continue;
    std::array<ibv_gid_entry, kMostGids> table{};
    const ibv_gid_entry* gid = find_gid(context.get(), address, table);
    if (gid == nullptr) continue;
    port.device = name;
    port.port = static_cast<std::uint8_t>(gid->port_num);
    port.gid_index = static_cast<std::uint8_t>(gid->gid_index);
    return context;
  }
  throw std::runtime_error("no RDMA device has a RoCEv2 GID for " + options.address + ": expected " +
                           (others.empty() ? "a device" : "one of " + others) +
                           " with it; see `rdma link`, or set RAILWEAVE_RDMA=software");
}

class VerbsDevice final : public RdmaDevice {
 public:
  explicit VerbsDevice(const VerbsOptions& options) : context_(find_device(options, port_)) {
    port_.context = context_.get();
    port_.path_mtu = options.path_mtu;
    port_.timeout = timeout_for(options.silence);
    port_.traffic_class = options.traffic_class;
    channel_.reset(verbs().create_comp_channel(context_.get()));
    if (!channel_) raise_errno("device '" + port_.device + "' makes no completion channel");
    const std::size_t entries = options.connections * (VerbsQueuePair::kSends + VerbsQueuePair::kReceives);
    queue_.reset(verbs().create_cq(context_.get(), static_cast<int>(entries), nullptr, channel_.get(), 0));
    if (!queue_)
      raise_errno("device '" + port_.device + "' makes no completion queue of " + std::to_string(entries));
    port_.queue = queue_.get();
    if (!ready_) raise_errno("epoll");
    watch(channel_->fd);
    watch(context_->async_fd);
    ibv_req_notify_cq(queue_.get(), 0);
  }

  std::string where() const override { return "on device " + port_.device; }
  bool keeps_numbers() const override { return true; }

  std::uint32_t reserve_queue_pair_number() override {
    auto pair = std::make_unique<VerbsQueuePair>(port_, stats_);
    const std::uint32_t number = pair->number();
    pairs_[number] = std::move(pair);
    return number;
  }

  RdmaConnection& join(const roce::QueuePairOptions& options, roce::Ipv4Address peer, const roce::MacAddress&,
                       Time now) override {
    if (gone_)
      throw std::runtime_error("device '" + port_.device +
                               "' was gone: expected a device that works; start the job again to use it");
    VerbsQueuePair& pair = *pairs_.at(options.qpn);
    pair.join(options, peer, now);
    return pair;
  }
  void disconnect(std::uint32_t) override {}  // the queue pair was aborted, and will be joined again

  int fd() const override { return ready_.get(); }
  bool receive(Time now) override {
    take_events();
    ibv_cq* queue = nullptr;
    void* context = nullptr;
    unsigned events = 0;
    while (verbs().get_cq_event(channel_.get(), &queue, &context) == 0) ++events;
    if (events > 0) {
      verbs().ack_cq_events(queue_.get(), events);
      ibv_req_notify_cq(queue_.get(), 0);
    }
    std::array<ibv_wc, kBatch> done;
    for (int count; (count = ibv_poll_cq(queue_.get(), kBatch, done.data())) > 0;)
      for (int i = 0; i < count; ++i) {
        const ibv_wc& one = done[static_cast<std::size_t>(i)];
        if (const auto found = pairs_.find(one.qp_num); found != pairs_.end())
          found->second->complete(one, now);
      }
    return true;
  }
  void transmit(Time now) override {
    for (const auto& [number, pair] : pairs_) pair->transmit(now);
  }
  Time deadline() const override {
    Time earliest = kNever;
    for (const auto& [number, pair] : pairs_) earliest = std::min(earliest, pair->deadline());
    return earliest;
  }
  void expire(Time now) override { transmit(now); }
  const RdmaEndpointStats& stats() const override { return stats_; }

 private:
  void watch(int fd) {
    epoll_event event{.events = EPOLLIN, .data = {.fd = fd}};
    if (fcntl(fd, F_SETFL, fcntl(fd, F_GETFL) | O_NONBLOCK) < 0 ||
        epoll_ctl(ready_.get(), EPOLL_CTL_ADD, fd, &event) < 0)
      raise_errno("cannot wait for device '" + port_.device + "'");
  }

  void take_events() {
    ibv_async_event event;
    while (!gone_ && verbs().get_async_event(context_.get(), &event) == 0) {
      const std::string what = verbs().event_type_str(event.event_type);
      switch (event.event_type) {
        case IBV_EVENT_QP_FATAL:
        case IBV_EVENT_QP_REQ_ERR:
        case IBV_EVENT_QP_ACCESS_ERR:
          if (const auto found = pairs_.find(event.element.qp->qp_num); found != pairs_.end())
            found->second->died(what);
          break;
        case IBV_EVENT_CQ_ERR:
        case IBV_EVENT_DEVICE_FATAL:
          gone_ = true;
          // Nobody reads the device's events any more, so they would wake the loop forever.
          for (const int fd : {channel_->fd, context_->async_fd})
            epoll_ctl(ready_.get(), EPOLL_CTL_DEL, fd, nullptr);
          for (const auto& [number, pair] : pairs_) pair->died(what);
          break;
        default:  // ports and addresses change: affected queue pairs report errors
          break;
      }
      verbs().ack_async_event(&event);
    }
  }

  VerbsPort port_;
  const Context context_;
  std::unique_ptr<ibv_comp_channel, Destroy> channel_;
  std::unique_ptr<ibv_cq, Destroy> queue_;
  Descriptor ready_{epoll_create1(EPOLL_CLOEXEC)};  // epoll of the device's two descriptors
  RdmaEndpointStats stats_;
  std::map<std::uint32_t, std::unique_ptr<VerbsQueuePair>> pairs_;  // by number; destroyed first
  bool gone_ = false;
};

}  // namespace

std::unique_ptr<RdmaDevice> open_verbs_device(const VerbsOptions& options) {
  return std::make_unique<VerbsDevice>(options);
}

}  // namespace railweave

#else

namespace railweave {

std::unique_ptr<RdmaDevice> open_verbs_device(const VerbsOptions&) {
  throw std::runtime_error(
      "built without libibverbs' headers: expected those of Debian's libibverbs-dev; install it, and build "
      "again");
}

}  // namespace railweave

#endif
