// SPDX-License-Identifier: Apache-2.0
#include "ports/packet_socket.hpp"

#include <linux/if_ether.h>
#include <linux/if_packet.h>
#include <netinet/in.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

#include "core/headers.hpp"
#include "core/socket_buffer.hpp"

namespace railweave::ports {

namespace {

// A window of super-packets from every host must fit: 32 MiB is 10 ms at 25 Gbit/s.
constexpr int kReceiveBufferBytes = 32 << 20;

void set_option(int fd, int level, int option, const void* value, socklen_t size, const std::string& what) {
  if (setsockopt(fd, level, option, value, size) != 0) raise_errno(what);
}

/// The VLAN tag that the kernel removed from the frame, if any.
const tpacket_auxdata* auxiliary(msghdr& message) {
  for (cmsghdr* c = CMSG_FIRSTHDR(&message); c != nullptr; c = CMSG_NXTHDR(&message, c)) {
    if (c->cmsg_level == SOL_PACKET && c->cmsg_type == PACKET_AUXDATA) {
      return reinterpret_cast<const tpacket_auxdata*>(CMSG_DATA(c));
    }
  }
  return nullptr;
}

}  // namespace

Descriptor open_packet_socket(const std::string& interface, unsigned index) {
  // Protocol 0 until bound: otherwise frames of all interfaces would arrive before the bind.
  Descriptor socket(::socket(AF_PACKET, SOCK_RAW | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
  if (!socket) raise_errno("a raw packet socket");
  const int fd = socket.get();
  const int on = 1;
  for (const auto& [option, name] :
       {std::pair{PACKET_VNET_HDR, "PACKET_VNET_HDR"}, std::pair{PACKET_AUXDATA, "PACKET_AUXDATA"},
        std::pair{PACKET_IGNORE_OUTGOING, "PACKET_IGNORE_OUTGOING"}}) {
    set_option(fd, SOL_PACKET, option, &on, sizeof on, std::string(name) + " on " + interface);
  }
  set_buffer(fd, kReceiveBufferOptions, kReceiveBufferBytes);
  set_buffer(fd, kSendBufferOptions, kSendBufferBytes);
  packet_mreq promiscuous{};
  promiscuous.mr_ifindex = static_cast<int>(index);
  promiscuous.mr_type = PACKET_MR_PROMISC;
  set_option(fd, SOL_PACKET, PACKET_ADD_MEMBERSHIP, &promiscuous, sizeof promiscuous,
             "promiscuous mode on " + interface);
  sockaddr_ll address{};
  address.sll_family = AF_PACKET;
  address.sll_protocol = htons(ETH_P_ALL);
  address.sll_ifindex = static_cast<int>(index);
  if (bind(fd, reinterpret_cast<const sockaddr*>(&address), sizeof address) != 0)
    raise_errno("binding to " + interface);
  return socket;
}

std::uint64_t take_kernel_drops(int fd) {
  tpacket_stats statistics{};
  socklen_t size = sizeof statistics;
  if (getsockopt(fd, SOL_PACKET, PACKET_STATISTICS, &statistics, &size) != 0) return 0;
  return statistics.tp_drops;
}

ReceiveBatch::ReceiveBatch()
    : buffer_(std::make_unique_for_overwrite<std::byte[]>(kFrames * kFrameBytes)), messages_{} {
  for (unsigned i = 0; i < kFrames; ++i) {
    // Leaves room before the frame to restore a VLAN tag.
    vectors_[i] = {iovec{&offloads_[i], sizeof offloads_[i]},
                   iovec{&buffer_[i * kFrameBytes + kVlanTagSize], kFrameBytes - kVlanTagSize}};
    messages_[i].msg_hdr.msg_iov = vectors_[i].data();
    messages_[i].msg_hdr.msg_iovlen = 2;
    messages_[i].msg_hdr.msg_control = control_[i].data();
  }
}

int ReceiveBatch::receive(int fd) {
  for (mmsghdr& message : messages_) message.msg_hdr.msg_controllen = kControlBytes;
  const int count = recvmmsg(fd, messages_.data(), most_, MSG_DONTWAIT, nullptr);
  if (count < 0) return -errno;
  full_ = static_cast<unsigned>(count) == most_;
  cut_ = full_ && most_ < kFrames;
  std::size_t bytes = 1;
  for (int i = 0; i < count; ++i) bytes += messages_[static_cast<unsigned>(i)].msg_len;
  most_ = static_cast<unsigned>(
      std::clamp<std::size_t>(kBatchBytes * static_cast<unsigned>(count) / bytes, 1, kFrames));
  return count;
}

int ReceiveBatch::receive(SharedLink& link) {
  unsigned count = 0;
  for (; count < kFrames && link.readable(); ++count) {
    const iovec& to = vectors_[count][1];
    const std::size_t size = link.receive({static_cast<std::byte*>(to.iov_base), to.iov_len});
    offloads_[count] = {};
    messages_[count].msg_len = static_cast<unsigned>(sizeof(Offload) + size);
    messages_[count].msg_hdr.msg_flags = 0;
    messages_[count].msg_hdr.msg_controllen = 0;
  }
  full_ = cut_ = false;
  return static_cast<int>(count);
}

MutableBytes ReceiveBatch::frame(unsigned i) {
  msghdr& message = messages_[i].msg_hdr;
  const std::size_t received = messages_[i].msg_len;
  if ((message.msg_flags & MSG_TRUNC) || received < sizeof(Offload) + kEthernetSize) return {};
  std::byte* start = &buffer_[i * kFrameBytes + kVlanTagSize];
  std::size_t size = received - sizeof(Offload);
  const tpacket_auxdata* aux = auxiliary(message);
  if (aux != nullptr && (aux->tp_status & TP_STATUS_VLAN_VALID)) {
    constexpr std::size_t addresses = kEthernetSize - 2;
    std::memmove(start - kVlanTagSize, start, addresses);
    start -= kVlanTagSize;
    size += kVlanTagSize;
    const bool typed = (aux->tp_status & TP_STATUS_VLAN_TPID_VALID) != 0;
    store_be<std::uint16_t>(start + addresses, typed ? aux->tp_vlan_tpid : kEtherVlan);
    store_be<std::uint16_t>(start + addresses + 2, aux->tp_vlan_tci);
    offloads_[i].csum_start = static_cast<std::uint16_t>(offloads_[i].csum_start + kVlanTagSize);
  }
  return {start, size};
}

int send_batch(int fd, OutputQueue& queue, std::span<const OutputFrame> frames) {
  constexpr std::size_t kBatch = 64;
  std::array<mmsghdr, kBatch> messages;
  std::array<iovec, kBatch> vectors;
  const std::size_t count = std::min(frames.size(), kBatch);
  for (std::size_t i = 0; i < count; ++i) {
    vectors[i] = {queue.data(frames[i]), frames[i].size};
    messages[i] = {};
    messages[i].msg_hdr.msg_iov = &vectors[i];
    messages[i].msg_hdr.msg_iovlen = 1;
  }
  const int sent = sendmmsg(fd, messages.data(), static_cast<unsigned>(count), MSG_DONTWAIT);
  return sent < 0 ? -errno : sent;
}

}  // namespace railweave::ports
