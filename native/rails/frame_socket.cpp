// SPDX-License-Identifier: Apache-2.0
#include "rails/frame_socket.hpp"

#include <arpa/inet.h>
#include <linux/filter.h>
#include <linux/if_ether.h>
#include <linux/if_packet.h>
#include <linux/pkt_sched.h>
#include <net/if.h>
#include <net/if_arp.h>
#include <netinet/udp.h>
#include <sys/ioctl.h>

#include <cerrno>
#include <cstring>
#include <utility>

#include "core/socket_buffer.hpp"

namespace railweave {
namespace {

constexpr int kReceiveBuffer = 8 << 20;
constexpr int kBatchesPerTurn = 4;

ifreq request_for(const std::string& interface) {
  ifreq request{};
  if (interface.empty() || interface.size() >= sizeof request.ifr_name) {
    errno = ENODEV;
    raise_errno("network interface '" + interface + "'");
  }
  interface.copy(request.ifr_name, interface.size());
  return request;
}

ifreq ask(int fd, unsigned long what, const std::string& interface) {
  ifreq request = request_for(interface);
  if (ioctl(fd, what, &request) < 0) raise_errno("network interface '" + interface + "'");
  return request;
}

template <typename T>
void set_option(int fd, int level, int name, const T& value, const char* what) {
  if (setsockopt(fd, level, name, &value, sizeof value) < 0) raise_errno(what);
}

template <std::size_t N>
void attach(int fd, std::array<sock_filter, N>& code) {
  const sock_fprog program{.len = static_cast<unsigned short>(N), .filter = code.data()};
  set_option(fd, SOL_SOCKET, SO_ATTACH_FILTER, program, "packet filter");
}

// Passes only RoCEv2 to this address and MAC: IPv4 without options or fragments, and UDP to port 4791.
void attach_roce_filter(int fd, roce::Ipv4Address address) {
  constexpr std::uint32_t ip = kEthernetSize, udp = ip + kIpv4Size;
  constexpr std::uint32_t packet_type = SKF_AD_OFF + SKF_AD_PKTTYPE;
  std::array<sock_filter, 16> code{{
      BPF_STMT(BPF_LD | BPF_H | BPF_ABS, 12),
      BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, ETH_P_IP, 0, 13),
      BPF_STMT(BPF_LD | BPF_B | BPF_ABS, ip),
      BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, 0x45, 0, 11),
      BPF_STMT(BPF_LD | BPF_H | BPF_ABS, ip + 6),
      BPF_JUMP(BPF_JMP | BPF_JSET | BPF_K, 0x3fff, 9, 0),
      BPF_STMT(BPF_LD | BPF_B | BPF_ABS, ip + 9),
      BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, IPPROTO_UDP, 0, 7),
      BPF_STMT(BPF_LD | BPF_W | BPF_ABS, ip + 16),
      BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, address, 0, 5),
      BPF_STMT(BPF_LD | BPF_H | BPF_ABS, udp + 2),
      BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, roce::kUdpPort, 0, 3),
      BPF_STMT(BPF_LD | BPF_B | BPF_ABS, packet_type),
      BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, PACKET_HOST, 0, 1),
      BPF_STMT(BPF_RET | BPF_K, 0x4'0000),
      BPF_STMT(BPF_RET | BPF_K, 0),
  }};
  attach(fd, code);
}

Descriptor open_packet_socket(const std::string& interface, roce::Ipv4Address address) {
  // Protocol 0 receives nothing until the filter is in place and the socket is bound.
  Descriptor socket(::socket(AF_PACKET, SOCK_RAW | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
  if (!socket) raise_errno("packet socket on '" + interface + "' (needs root or CAP_NET_RAW)");
  const int fd = socket.get();
  const int on = 1;
  attach_roce_filter(fd, address);
  set_option(fd, SOL_PACKET, PACKET_VNET_HDR, on, "PACKET_VNET_HDR");
  set_option(fd, SOL_PACKET, PACKET_IGNORE_OUTGOING, on, "PACKET_IGNORE_OUTGOING");
  set_buffer(fd, kReceiveBufferOptions, kReceiveBuffer);
  sockaddr_ll local{};
  local.sll_family = AF_PACKET;
  local.sll_protocol = htons(ETH_P_IP);
  local.sll_ifindex = ask(fd, SIOCGIFINDEX, interface).ifr_ifindex;
  if (bind(fd, reinterpret_cast<const sockaddr*>(&local), sizeof local) < 0)
    raise_errno("packet socket on '" + interface + "'");
  return socket;
}

/// Whether the error means that the kernel cannot cut a super-packet.
bool refuses_cut(int error) { return error == EINVAL || error == EOPNOTSUPP || error == EIO; }

std::string dotted(roce::Ipv4Address address) {
  const in_addr in{.s_addr = htonl(address)};
  char text[INET_ADDRSTRLEN];
  return inet_ntop(AF_INET, &in, text, sizeof text);
}

// Holds the UDP port and drops its packets. Otherwise the kernel would answer every packet with an ICMP
// error. Processes may share the port. If the kernel's rxe holds it exclusively, no errors are sent either.
Descriptor hold_port(const std::string& interface, roce::Ipv4Address address) {
  Descriptor socket(::socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0));
  if (!socket) raise_errno("UDP socket");
  const int fd = socket.get();
  const int on = 1;
  std::array<sock_filter, 1> drop{{BPF_STMT(BPF_RET | BPF_K, 0)}};
  attach(fd, drop);
  set_option(fd, SOL_SOCKET, SO_REUSEADDR, on, "SO_REUSEADDR");
  set_option(fd, SOL_UDP, UDP_GRO, on, "UDP_GRO");  // else super-packets are cut before they are dropped
  setsockopt(fd, SOL_SOCKET, SO_BINDTODEVICE, interface.c_str(), static_cast<socklen_t>(interface.size()));
  sockaddr_in local{};
  local.sin_family = AF_INET;
  local.sin_port = htons(roce::kUdpPort);
  local.sin_addr.s_addr = htonl(address);
  if (bind(fd, reinterpret_cast<const sockaddr*>(&local), sizeof local) < 0 && errno != EADDRINUSE) {
    raise_errno("UDP port 4791 at " + dotted(address) + " on '" + interface +
                "': is that the interface's address?");
  }
  return socket;
}

}  // namespace

FrameSocket::FrameSocket(const std::string& interface, roce::Ipv4Address address, std::size_t largest_packet)
    : interface_(interface),
      index_(if_nametoindex(interface.c_str())),
      in_(kSlot),
      bulk_(kSlot),
      urgent_(kUrgentSlot, TC_PRIO_INTERACTIVE) {
  socket_ = open_packet_socket(interface, address);
  std::memcpy(mac_.data(), ask(fd(), SIOCGIFHWADDR, interface).ifr_hwaddr.sa_data, mac_.size());
  const auto mtu = static_cast<std::size_t>(ask(fd(), SIOCGIFMTU, interface).ifr_mtu);
  if (mtu < largest_packet) {
    const std::string needed = std::to_string(largest_packet);
    throw std::runtime_error(
        "interface '" + interface + "' has an MTU of " + std::to_string(mtu) + ": expected " + needed +
        " or more, for RDMA packets; raise it (ip link set dev " + interface + " mtu " + needed + ")");
  }
  port_holder_ = hold_port(interface, address);
}

bool FrameSocket::outdated() const { return if_nametoindex(interface_.c_str()) != index_; }

std::optional<roce::MacAddress> FrameSocket::neighbour(roce::Ipv4Address address) const {
  arpreq request{};
  auto* const of = reinterpret_cast<sockaddr_in*>(&request.arp_pa);
  of->sin_family = AF_INET;
  of->sin_addr.s_addr = htonl(address);
  interface_.copy(request.arp_dev, sizeof request.arp_dev - 1);
  if (ioctl(port_holder_.get(), SIOCGARP, &request) < 0 || (request.arp_flags & ATF_COM) == 0)
    return std::nullopt;
  roce::MacAddress mac;
  std::memcpy(mac.data(), request.arp_ha.sa_data, mac.size());
  return mac;
}

FrameSocket::Lane::Lane(std::size_t slot_bytes, int packet_priority) : priority(packet_priority) {
  for (std::size_t i = 0; i < kBatch; ++i) {
    Slot& slot = slots[i];
    slot.bytes.resize(slot_bytes);
    slot.parts[0] = {.iov_base = &slot.offload, .iov_len = sizeof slot.offload};
    slot.parts[1] = {.iov_base = slot.bytes.data(), .iov_len = slot.bytes.size()};
    messages[i].msg_hdr.msg_iov = slot.parts;
    messages[i].msg_hdr.msg_iovlen = 2;
  }
}

void FrameSocket::Lane::commit(std::size_t size, const Offload& offload) {
  Slot& slot = slots[queued++];
  slot.offload = offload;
  slot.parts[1].iov_len = size;
}

void FrameSocket::commit(std::size_t size, const Offload& offload) { bulk_.commit(size, offload); }

bool FrameSocket::commit_urgent(std::size_t size, const Offload& offload) {
  if (size > kUrgentSlot || urgent_.queued == kBatch) return false;
  std::memcpy(urgent_.slots[urgent_.queued].bytes.data(), slot().data(), size);
  urgent_.commit(size, offload);
  return true;
}

FrameSocket::Sent FrameSocket::flush() {
  const Sent sent = flush(urgent_);
  return sent == Sent::kAll ? flush(bulk_) : sent;
}

FrameSocket::Sent FrameSocket::flush(Lane& lane) {
  if (lane.queued > 0 && std::exchange(priority_, lane.priority) != lane.priority)
    set_option(fd(), SOL_SOCKET, SO_PRIORITY, lane.priority, "SO_PRIORITY");
  while (lane.sent < lane.queued) {
    const int count = lane.cut ? send_piece(lane)
                               : sendmmsg(fd(), &lane.messages[lane.sent],
                                          static_cast<unsigned>(lane.queued - lane.sent), 0);
    if (count >= 0) {
      lane.sent += static_cast<std::size_t>(count);
    } else if (errno == EAGAIN) {
      return Sent::kBlocked;
    } else if (errno == ENOBUFS) {
      return Sent::kNoBuffers;
    } else if (errno != EINTR && !(refuses_cut(errno) && begin_cut(lane))) {
      raise_errno("send");
    }
  }
  lane.sent = lane.queued = 0;
  return Sent::kAll;
}

/// Returns false if the next frame is no super-packet.
bool FrameSocket::begin_cut(Lane& lane) {
  Slot& slot = lane.slots[lane.sent];
  if (lane.cut || slot.offload.gso_type == kGsoNone) return false;
  kernel_cuts_ = false;
  ++refused_cuts_;
  lane.cut.emplace(MutableBytes(slot.bytes).first(slot.parts[1].iov_len), slot.offload);
  lane.piece = lane.cut->next();
  return true;
}

/// Returns how many super-packets are completely sent by this call; -1 for an error, as sendmmsg.
int FrameSocket::send_piece(Lane& lane) {
  Offload whole{};
  iovec parts[] = {{.iov_base = &whole, .iov_len = sizeof whole},
                   {.iov_base = lane.piece->data(), .iov_len = lane.piece->size()}};
  msghdr message{};
  message.msg_iov = parts;
  message.msg_iovlen = 2;
  if (sendmsg(fd(), &message, 0) < 0) return -1;
  lane.piece = lane.cut->next();
  if (lane.piece) return 0;
  lane.cut.reset();
  return 1;
}

bool FrameSocket::try_kernel_cuts() {
  constexpr std::size_t kSegment = 16;
  constexpr roce::Ipv4Address kLoopback = 0x7f000001;
  const std::string interface = "lo";
  const roce::Path path{.peer_mac = {2}, .source = kLoopback, .peer = kLoopback};  // nobody's MAC
  std::array<std::byte, roce::kFrameHeaderSize + 2 * kSegment> frame{};
  roce::write_headers(path, roce::network_header(path, 0, 2 * kSegment - roce::kIcrcSize), frame);
  Offload offload = make_super_packet(frame, kSegment);
  const Descriptor socket = open_packet_socket(interface, kLoopback);
  iovec parts[] = {{.iov_base = &offload, .iov_len = sizeof offload},
                   {.iov_base = frame.data(), .iov_len = frame.size()}};
  mmsghdr message{};
  message.msg_hdr.msg_iov = parts;
  message.msg_hdr.msg_iovlen = 2;
  if (sendmmsg(socket.get(), &message, 1, 0) == 1) return true;
  if (!refuses_cut(errno)) raise_errno("send over '" + interface + "'");
  return false;
}

bool FrameSocket::receive(const std::function<void(Bytes, const Offload&)>& handle) {
  for (int batch = 0; batch < kBatchesPerTurn; ++batch) {
    const int count = recvmmsg(fd(), in_.messages.data(), kBatch, 0, nullptr);
    if (count < 0 && errno == EAGAIN) return true;
    if (count < 0 && (errno == EINTR || errno == EINVAL))
      continue;  // EINVAL: a frame that the kernel cannot describe
    if (count < 0) raise_errno("receive");
    for (int i = 0; i < count; ++i) {
      Slot& slot = in_.slots[static_cast<std::size_t>(i)];
      const std::size_t size = in_.messages[static_cast<std::size_t>(i)].msg_len;
      if (size <= sizeof slot.offload) continue;
      handle(Bytes(slot.bytes).first(size - sizeof slot.offload), slot.offload);
    }
    if (count < static_cast<int>(kBatch)) return true;
  }
  return false;
}

}  // namespace railweave
