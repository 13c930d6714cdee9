// SPDX-License-Identifier: Apache-2.0
// A libibverbs with one device, whose GID is ::ffff:127.0.0.1. It sends nothing, and fails when a test
// orders so. Loaded with LD_PRELOAD, it also counts how often the program has waited for events.
#define _GNU_SOURCE
#include <errno.h>
#include <infiniband/verbs.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/syscall.h>
#include <unistd.h>

static struct ibv_device device;
static struct ibv_context context;
static int posts_fail, events;
static unsigned long turns;

void fail_posts(void) { posts_fail = 1; }
unsigned long count_turns(void) { return __atomic_load_n(&turns, __ATOMIC_SEQ_CST); }
void say_fatal(int times) {
  events = times;
  eventfd_write(context.async_fd, 1);
}

int epoll_pwait2(int fd, struct epoll_event* found, int most, const struct timespec* timeout,
                 const sigset_t* mask) {
  __atomic_add_fetch(&turns, 1, __ATOMIC_SEQ_CST);
  return (int)syscall(SYS_epoll_pwait2, fd, found, most, timeout, mask, _NSIG / 8);
}

static int poll_cq(struct ibv_cq* queue, int most, struct ibv_wc* done) { return 0; }
static int req_notify_cq(struct ibv_cq* queue, int solicited) { return 0; }
static int post_send(struct ibv_qp* pair, struct ibv_send_wr* request, struct ibv_send_wr** bad) {
  return posts_fail ? ENODEV : 0;
}
static int post_recv(struct ibv_qp* pair, struct ibv_recv_wr* request, struct ibv_recv_wr** bad) { return 0; }

struct ibv_device** ibv_get_device_list(int* count) {
  struct ibv_device** list = calloc(2, sizeof *list);
  list[0] = &device;
  *count = 1;
  return list;
}
void ibv_free_device_list(struct ibv_device** list) { free(list); }
const char* ibv_get_device_name(struct ibv_device* of) { return "fake0"; }
struct ibv_context* ibv_open_device(struct ibv_device* of) {
  context.device = of;
  context.async_fd = eventfd(0, EFD_CLOEXEC);
  context.ops.poll_cq = poll_cq;
  context.ops.req_notify_cq = req_notify_cq;
  context.ops.post_send = post_send;
  context.ops.post_recv = post_recv;
  return &context;
}
int ibv_close_device(struct ibv_context* of) { return close(of->async_fd); }
ssize_t _ibv_query_gid_table(struct ibv_context* of, struct ibv_gid_entry* entries, size_t most,
                             uint32_t flags, size_t size) {
  memset(entries, 0, size);
  memcpy(entries->gid.raw + 10, "\xff\xff\x7f\x00\x00\x01", 6);
  entries->port_num = 1;
  entries->gid_type = IBV_GID_TYPE_ROCE_V2;
  return 1;
}
struct ibv_pd* ibv_alloc_pd(struct ibv_context* of) { return calloc(1, sizeof(struct ibv_pd)); }
int ibv_dealloc_pd(struct ibv_pd* domain) { return free(domain), 0; }
#undef ibv_reg_mr
struct ibv_mr* ibv_reg_mr(struct ibv_pd* domain, void* at, size_t bytes, int access) {
  return calloc(1, sizeof(struct ibv_mr));
}
int ibv_dereg_mr(struct ibv_mr* region) { return free(region), 0; }
struct ibv_comp_channel* ibv_create_comp_channel(struct ibv_context* of) {
  struct ibv_comp_channel* channel = calloc(1, sizeof *channel);
  channel->fd = eventfd(0, EFD_CLOEXEC);
  return channel;
}
int ibv_destroy_comp_channel(struct ibv_comp_channel* channel) {
  return close(channel->fd), free(channel), 0;
}
struct ibv_cq* ibv_create_cq(struct ibv_context* of, int entries, void* own, struct ibv_comp_channel* channel,
                             int vector) {
  struct ibv_cq* queue = calloc(1, sizeof *queue);
  queue->context = of;
  return queue;
}
int ibv_destroy_cq(struct ibv_cq* queue) { return free(queue), 0; }
int ibv_get_cq_event(struct ibv_comp_channel* channel, struct ibv_cq** queue, void** own) {
  return errno = EAGAIN, -1;
}
void ibv_ack_cq_events(struct ibv_cq* queue, unsigned int count) {}
struct ibv_qp* ibv_create_qp(struct ibv_pd* domain, struct ibv_qp_init_attr* attributes) {
  static uint32_t number = 100;
  struct ibv_qp* pair = calloc(1, sizeof *pair);
  pair->context = &context;
  pair->qp_num = ++number;
  return pair;
}
int ibv_modify_qp(struct ibv_qp* pair, struct ibv_qp_attr* attributes, int mask) { return 0; }
int ibv_destroy_qp(struct ibv_qp* pair) { return free(pair), 0; }
int ibv_get_async_event(struct ibv_context* of, struct ibv_async_event* event) {
  eventfd_t value;
  if (events == 0) return errno = EAGAIN, -1;
  if (--events == 0) eventfd_read(of->async_fd, &value);
  event->event_type = IBV_EVENT_DEVICE_FATAL;
  return 0;
}
void ibv_ack_async_event(struct ibv_async_event* event) {}
const char* ibv_event_type_str(enum ibv_event_type type) { return "an event"; }
const char* ibv_wc_status_str(enum ibv_wc_status status) { return "a status"; }
