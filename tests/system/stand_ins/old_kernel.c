// SPDX-License-Identifier: Apache-2.0
// A library for LD_PRELOAD that acts like Linux before 6.2: packet sockets take no UDP super-packets.
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <sys/socket.h>

static int refused(int fd, const struct msghdr *message) {
  int domain = 0;
  socklen_t size = sizeof domain;
  if (getsockopt(fd, SOL_SOCKET, SO_DOMAIN, &domain, &size) < 0 || domain != AF_PACKET) return 0;
  // struct virtio_net_hdr comes first: flags, gso_type.
  return message->msg_iov[0].iov_len == 10 && ((unsigned char *)message->msg_iov[0].iov_base)[1] == 5;
}

int sendmmsg(int fd, struct mmsghdr *messages, unsigned count, int flags) {
  int (*real)(int, struct mmsghdr *, unsigned, int) =
      (int (*)(int, struct mmsghdr *, unsigned, int))dlsym(RTLD_NEXT, "sendmmsg");
  unsigned taken = 0;
  while (taken < count && !refused(fd, &messages[taken].msg_hdr)) ++taken;
  if (taken > 0) return real(fd, messages, taken, flags);
  errno = EINVAL;
  return -1;
}
