// SPDX-License-Identifier: Apache-2.0
#include "rails/datagram_socket.hpp"

#include <linux/filter.h>
#include <net/if.h>
#include <netinet/udp.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <limits>
#include <stdexcept>

#include "core/socket_buffer.hpp"
#include "rails/socket.hpp"

namespace railweave {
namespace {

constexpr int kBestEffort = 0;         // CS0
constexpr int kLowerEffort = 0x20;     // CS1
constexpr int kNetworkControl = 0xc0;  // CS6
constexpr std::size_t kMaxSuperPacket = 65'535 - kIpUdpHeaders;
constexpr std::size_t kMaxSegments = 64;  // limit of every kernel with UDP_SEGMENT
constexpr std::size_t kSendMessages = 64;
constexpr int kUnknownMtu = std::numeric_limits<int>::max();
constexpr std::size_t kReceiveMessages = 16;
constexpr std::size_t kReceiveBytes = 65'536;

template <typename T>
int set_option(int fd, int level, int name, T value) {
  return setsockopt(fd, level, name, &value, sizeof value);
}

/// Returns the result of `work`. Turns std::system_error into std::runtime_error.
template <typename Work>
auto plainly(const Work& work) {
  try {
    return work();
  } catch (const std::system_error& error) {
    throw std::runtime_error(error.what());
  }
}

/// The MTU of the route; kUnknownMtu if the kernel does not know it.
int path_mtu(const sockaddr_in& remote) {
  const int fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
  int mtu = kUnknownMtu;
  socklen_t length = sizeof mtu;
  if (fd >= 0 && connect(fd, reinterpret_cast<const sockaddr*>(&remote), sizeof remote) == 0)
    getsockopt(fd, IPPROTO_IP, IP_MTU, &mtu, &length);
  close(fd);
  return mtu;
}

}  // namespace

DatagramSocket::DatagramSocket(LocalInterface local, std::uint16_t port)
    : DatagramSocket(std::move(local), port, /*shared=*/false) {}

DatagramSocket::DatagramSocket(LocalInterface local, std::uint16_t port, bool shared)
    : local_(std::move(local)),
      port_(port),
      shared_(shared),
      interface_(interface_index(local_.interface)),
      socket_(open()),
      arena_(kReceiveMessages * kReceiveBytes) {
  port_ = port_of(socket_);
}

Descriptor DatagramSocket::open() const {
  Descriptor socket = plainly([this] { return datagrams_on(local_, port_, shared_); });
  if (set_option(socket.get(), SOL_UDP, UDP_GRO, 1) < 0) raise_errno("UDP_GRO (Linux 5.0 and later)");
  return socket;
}

// Shares the port only after binding. The kernel gives ports that are shared before to sockets that ask for
// any.
DatagramSocket DatagramSocket::open_shared() {
  share_port(socket_);
  shared_ = true;
  DatagramSocket made(local_, port_, /*shared=*/true);
  made.super_bytes_ = super_bytes_;
  made.lower_effort_ = lower_effort_;
  return made;
}

void DatagramSocket::steer_by_group(
    std::uint32_t offset, const std::vector<std::pair<std::uint16_t, std::uint32_t>>& sockets) const {
  // The kernel numbers sockets in the order of binding. A load beyond the packet's end returns 0.
  std::vector<sock_filter> code{BPF_STMT(BPF_LD | BPF_H | BPF_ABS, offset)};
  for (const auto& [value, socket] : sockets) {
    code.push_back(BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, value, 0, 1));
    code.push_back(BPF_STMT(BPF_RET | BPF_K, socket));
  }
  code.push_back(BPF_STMT(BPF_RET | BPF_K, 0));
  const sock_fprog program{.len = static_cast<unsigned short>(code.size()), .filter = code.data()};
  if (set_option(fd(), SOL_SOCKET, SO_ATTACH_REUSEPORT_CBPF, program) < 0)
    raise_errno("SO_ATTACH_REUSEPORT_CBPF");
}

Descriptor DatagramSocket::reopen() {
  const unsigned index = interface_index(local_.interface);
  Descriptor old = std::exchange(socket_, open());
  interface_ = index;
  connected_ = false;  // `send` connects
  apply_options();
  return old;
}

void DatagramSocket::set_remotes(const std::vector<SocketAddress>& remotes) {
  std::vector<sockaddr_in> parsed;
  for (const SocketAddress& remote : remotes) parsed.push_back(plainly([&] { return ipv4(remote); }));
  remotes_ = std::move(parsed);
  connected_ = false;
  if (connects()) connect_to_one();
}

/// With one remote, a connected socket needs no route lookup per datagram, and the kernel filters strangers.
/// Connecting fails while the interface is down. Sockets that share a port stay unconnected, because a
/// connected socket is not part of the distribution.
void DatagramSocket::connect_to_one() {
  const auto* remote = reinterpret_cast<const sockaddr*>(remotes_.data());
  connected_ = ::connect(fd(), remote, sizeof(sockaddr_in)) == 0;
}

std::optional<std::size_t> DatagramSocket::largest_datagram() const {
  int mtu = kUnknownMtu;
  for (const sockaddr_in& remote : remotes_) mtu = std::min(mtu, path_mtu(remote));
  if (mtu == kUnknownMtu) return std::nullopt;
  return static_cast<std::size_t>(mtu) - kIpUdpHeaders;
}

void DatagramSocket::set_lower_effort(bool lower) {
  lower_effort_ = lower;
  apply_options();
}

void DatagramSocket::set_buffers(std::size_t bytes) {
  buffers_ = bytes;
  apply_options();
}

void DatagramSocket::apply_options() const {
  set_option(fd(), IPPROTO_IP, IP_TOS, lower_effort_ ? kLowerEffort : kBestEffort);
  const int size = static_cast<int>(std::min<std::size_t>(buffers_, 1u << 30));
  set_buffer(fd(), kReceiveBufferOptions, size);
  set_buffer(fd(), kSendBufferOptions, size);
}

/// Messages for sendmmsg: datagrams or super-packets, which are gathered from the caller's memory.
struct DatagramSocket::SendBatch {
  std::array<mmsghdr, kSendMessages> messages;
  std::array<std::size_t, kSendMessages> datagrams;  // in each message
  static constexpr std::size_t kControlBytes = CMSG_SPACE(sizeof(std::uint16_t)) + CMSG_SPACE(sizeof(int));
  alignas(cmsghdr) std::array<std::array<std::byte, kControlBytes>, kSendMessages> controls;
  std::array<iovec, kSendMessages * 4> vectors;
  std::size_t size = 0;
  std::size_t vectors_used = 0;
  const bool urgent;

  explicit SendBatch(bool urgent) : urgent(urgent) {}

  /// Returns false if there is no room.
  bool add(std::span<const Bytes> group) {
    if (size == kSendMessages || vectors_used + group.size() > vectors.size()) return false;
    iovec* const first = &vectors[vectors_used];
    iovec* last = nullptr;
    for (const Bytes& datagram : group) {
      auto* const start = const_cast<std::byte*>(datagram.data());
      if (last != nullptr && static_cast<std::byte*>(last->iov_base) + last->iov_len == start) {
        last->iov_len += datagram.size();
      } else {
        last = &vectors[vectors_used++];
        *last = {.iov_base = start, .iov_len = datagram.size()};
      }
    }
    messages[size] = {};
    messages[size].msg_hdr.msg_iov = first;
    messages[size].msg_hdr.msg_iovlen = static_cast<std::size_t>(last - first) + 1;
    // The size of the datagrams in the super-packet.
    if (group.size() > 1) attach(SOL_UDP, UDP_SEGMENT, static_cast<std::uint16_t>(group[0].size()));
    if (urgent) attach(SOL_IP, IP_TOS, kNetworkControl);
    datagrams[size++] = group.size();
    return true;
  }

  /// Adds a control message for the kernel.
  template <typename T>
  void attach(int level, int type, const T& value) {
    msghdr& header = messages[size].msg_hdr;
    auto* const control = reinterpret_cast<cmsghdr*>(controls[size].data() + header.msg_controllen);
    control->cmsg_level = level;
    control->cmsg_type = type;
    control->cmsg_len = CMSG_LEN(sizeof value);
    std::memcpy(CMSG_DATA(control), &value, sizeof value);
    header.msg_control = controls[size].data();
    header.msg_controllen += CMSG_SPACE(sizeof value);
  }

  void address(sockaddr_in& remote) {
    for (std::size_t i = 0; i < size; ++i) {
      messages[i].msg_hdr.msg_name = &remote;
      messages[i].msg_hdr.msg_namelen = sizeof remote;
    }
  }
};

/// How many of the first datagrams have one size and fit one super-packet of `most_bytes` on the wire.
std::size_t DatagramSocket::group(std::span<const Bytes> datagrams, std::size_t most_bytes) {
  const std::size_t frame = datagrams[0].size() + kUdpHeaders;
  const std::size_t limit = std::min({most_bytes / frame, kMaxSegments, datagrams.size()});
  std::size_t count = 1;
  while (count < limit && datagrams[count].size() == datagrams[0].size()) ++count;
  return count;
}

std::size_t DatagramSocket::send(std::span<const Bytes> datagrams, std::size_t remote, bool urgent,
                                 const std::function<void(std::span<const Bytes>)>& on_sent) {
  std::size_t gone = 0;
  if (!connected_ && connects()) connect_to_one();
  if (!connected_ && connects()) {
    stats_.send_drops += datagrams.size();
    return datagrams.size();
  }
  std::size_t most_bytes = std::min(super_bytes_, kMaxSuperPacket);
  while (gone < datagrams.size()) {
    SendBatch batch(urgent);
    for (std::size_t at = gone; at < datagrams.size();) {
      const std::size_t count = group(datagrams.subspan(at), most_bytes);
      if (!batch.add(datagrams.subspan(at, count))) break;
      at += count;
    }
    if (!connected_) batch.address(remotes_.at(remote));
    const int sent = sendmmsg(fd(), batch.messages.data(), static_cast<unsigned>(batch.size), 0);
    for (int i = 0; i < sent; ++i) {
      if (on_sent) on_sent(datagrams.subspan(gone, batch.datagrams[i]));
      gone += batch.datagrams[i];
      stats_.packets_sent += batch.datagrams[i];
      stats_.bytes_sent += batch.messages[i].msg_len + batch.datagrams[i] * kUdpHeaders;
    }
    if (sent >= 0) continue;
    switch (errno) {
      case EAGAIN:
        return gone;
      case EINTR:
      case ECONNREFUSED:  // an ICMP error about an earlier datagram, reported instead of sending this one
        break;
      case EIO:
      case EINVAL:
      case EMSGSIZE:
        if (batch.datagrams[0] > 1) {  // the path cannot cut it now: a lower MTU, or an offload is off
          ++stats_.segmentation_refused;
          most_bytes = 0;
          break;
        }
        [[fallthrough]];
      default:  // a message that cannot be sent counts as lost
        stats_.send_drops += batch.datagrams[0];
        gone += batch.datagrams[0];
    }
  }
  return gone;
}

struct DatagramSocket::ReceiveBatch {
  std::array<mmsghdr, kReceiveMessages> messages{};
  std::array<iovec, kReceiveMessages> vectors;
  std::array<sockaddr_in, kReceiveMessages> senders{};
  alignas(cmsghdr) std::array<std::array<std::byte, CMSG_SPACE(sizeof(int))>, kReceiveMessages> controls;

  explicit ReceiveBatch(std::byte* arena) {
    for (std::size_t i = 0; i < kReceiveMessages; ++i) {
      vectors[i] = {.iov_base = arena + i * kReceiveBytes, .iov_len = kReceiveBytes};
      msghdr& header = messages[i].msg_hdr;
      header.msg_iov = &vectors[i];
      header.msg_iovlen = 1;
      header.msg_name = &senders[i];
      header.msg_namelen = sizeof senders[i];
      header.msg_control = controls[i].data();
      header.msg_controllen = controls[i].size();
    }
  }

  /// Size of the datagrams in message `i`; the last may be shorter.
  std::size_t segment(std::size_t i) {
    msghdr& header = messages[i].msg_hdr;
    for (cmsghdr* c = CMSG_FIRSTHDR(&header); c != nullptr; c = CMSG_NXTHDR(&header, c)) {
      if (c->cmsg_level != SOL_UDP || c->cmsg_type != UDP_GRO) continue;
      int size;
      std::memcpy(&size, CMSG_DATA(c), sizeof size);
      if (size > 0) return static_cast<std::size_t>(size);
    }
    return std::max<std::size_t>(messages[i].msg_len, 1);
  }
};

bool DatagramSocket::is_remote(const sockaddr_in& sender) const {
  return std::any_of(remotes_.begin(), remotes_.end(), [&](const sockaddr_in& remote) {
    return remote.sin_addr.s_addr == sender.sin_addr.s_addr && remote.sin_port == sender.sin_port;
  });
}

bool DatagramSocket::receive(const std::function<void(Bytes)>& take) {
  ReceiveBatch batch(arena_.data());
  const int received = recvmmsg(fd(), batch.messages.data(), kReceiveMessages, MSG_DONTWAIT, nullptr);
  if (received < 0) return errno == ECONNREFUSED || errno == EINTR;  // after an ICMP error: repeat
  for (int i = 0; i < received; ++i) {
    if (!connected_ && !is_remote(batch.senders[i])) {
      ++stats_.malformed;
      continue;
    }
    const std::size_t segment = batch.segment(i);
    const Bytes all(arena_.data() + i * kReceiveBytes, batch.messages[i].msg_len);
    for (std::size_t at = 0; at == 0 || at < all.size(); at += segment) {
      const Bytes datagram = all.subspan(at, std::min(segment, all.size() - at));
      ++stats_.packets_received;
      stats_.bytes_received += datagram.size() + kUdpHeaders;
      take(datagram);
    }
  }
  return received == static_cast<int>(kReceiveMessages);
}

}  // namespace railweave
