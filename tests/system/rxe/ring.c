// SPDX-License-Identifier: Apache-2.0
// A member of a ring, in a virtual machine: it knows nothing of sums on the way. It posts RDMA WRITEs to the next member,
// and finds in its own memory what the one before has written, by completions. It connects to a TCP address and obeys
// lines; each is answered with one line. Usage: ring ADDRESS PORT
//   open                                        two new queue pairs            -> "qp OUT IN"
//   connect OUT_PEER OUT_PSN NEXT_ADDRESS IN_PEER IN_PSN BEFORE_ADDRESS        -> "ok"
//   run RANK MEMBERS MESSAGES WINDOW BYTES ADDRESS RKEY SECONDS                -> "done" or what went wrong
// Message k is sent when message k - WINDOW has arrived. Its numbers are in network order.
#include <arpa/inet.h>
#include <infiniband/verbs.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

enum { kBufferSize = 1 << 20, kDepth = 64 };

static struct ibv_context* context;
static struct ibv_pd* pd;
static struct ibv_cq *send_cq, *receive_cq;
static struct ibv_mr* mr;
static struct ibv_qp *out, *in;
static uint32_t* buffer;  // the first half is sent, the second half is written by the member before
static int gid_index = -1;

static void die(const char* what) {
  perror(what);
  exit(1);
}

static void open_device(void) {
  int count = 0;
  struct ibv_device** devices = ibv_get_device_list(&count);
  if (count == 0) die("no RDMA device");
  context = ibv_open_device(devices[0]);
  if (!context) die("ibv_open_device");
  pd = ibv_alloc_pd(context);
  send_cq = ibv_create_cq(context, kDepth, NULL, NULL, 0);
  receive_cq = ibv_create_cq(context, kDepth, NULL, NULL, 0);
  buffer = calloc(1, kBufferSize);
  if (!pd || !send_cq || !receive_cq || !buffer) die("verbs objects");
  mr = ibv_reg_mr(pd, buffer, kBufferSize, IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE);
  if (!mr) die("ibv_reg_mr");
  // The GID that stands for the IPv4 address: ::ffff:a.b.c.d
  static const uint8_t mapped[12] = {[10] = 0xff, [11] = 0xff};
  union ibv_gid gid;
  for (int index = 0; index < 16 && gid_index < 0; ++index) {
    if (ibv_query_gid(context, 1, index, &gid) == 0 && memcmp(gid.raw, mapped, sizeof mapped) == 0) gid_index = index;
  }
  if (gid_index < 0) die("no IPv4 GID");
}

static struct ibv_qp* open_queue_pair(void) {
  struct ibv_qp_init_attr init = {
      .send_cq = send_cq,
      .recv_cq = receive_cq,
      .qp_type = IBV_QPT_RC,
      .cap = {.max_send_wr = kDepth, .max_recv_wr = kDepth, .max_send_sge = 1, .max_recv_sge = 1},
  };
  struct ibv_qp* qp = ibv_create_qp(pd, &init);
  struct ibv_qp_attr attr = {
      .qp_state = IBV_QPS_INIT,
      .port_num = 1,
      .qp_access_flags = IBV_ACCESS_REMOTE_WRITE,
  };
  if (!qp || ibv_modify_qp(qp, &attr, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS)) {
    die("queue pair");
  }
  return qp;
}

static int connect_queue_pair(struct ibv_qp* qp, uint32_t peer, uint32_t psn, const char* address) {
  struct ibv_qp_attr attr = {
      .qp_state = IBV_QPS_RTR,
      .path_mtu = IBV_MTU_1024,
      .dest_qp_num = peer,
      .rq_psn = psn,
      .max_dest_rd_atomic = 1,
      .min_rnr_timer = 12,
      .ah_attr = {.is_global = 1, .port_num = 1, .grh = {.sgid_index = gid_index, .hop_limit = 64}},
  };
  attr.ah_attr.grh.dgid.raw[10] = attr.ah_attr.grh.dgid.raw[11] = 0xff;
  if (inet_pton(AF_INET, address, attr.ah_attr.grh.dgid.raw + 12) != 1) return -1;
  if (ibv_modify_qp(qp, &attr, IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN |
                                   IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER)) {
    return -1;
  }
  attr.qp_state = IBV_QPS_RTS;
  attr.timeout = 13;  // 34 ms
  attr.retry_cnt = 7;  // to rxe, for ever: an emulated member may be late
  attr.rnr_retry = 7;
  attr.sq_psn = psn;
  attr.max_rd_atomic = 1;
  return ibv_modify_qp(qp, &attr, IBV_QP_STATE | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY |
                                      IBV_QP_SQ_PSN | IBV_QP_MAX_QP_RD_ATOMIC);
}

struct job {
  uint32_t rank, members, messages, window, bytes;
  uint64_t address;
  uint32_t rkey, seconds;
};

static uint32_t number(uint32_t rank, uint32_t message, uint32_t at) {
  return (rank + 1) * 2654435761u ^ (message * 40503u + at) * 2246822519u;
}

static int post_receive(void) {
  struct ibv_recv_wr request = {0}, *bad;
  return ibv_post_recv(in, &request, &bad);
}

static int post_write(const struct job* job, uint32_t message) {
  const uint32_t words = job->bytes / 4, place = message % job->window;
  uint32_t* data = buffer + place * words;
  for (uint32_t at = 0; at < words; ++at) data[at] = htonl(number(job->rank, message, at));
  struct ibv_sge from = {.addr = (uintptr_t)data, .length = job->bytes, .lkey = mr->lkey};
  struct ibv_send_wr request = {
      .sg_list = &from,
      .num_sge = 1,
      .opcode = IBV_WR_RDMA_WRITE_WITH_IMM,
      .send_flags = IBV_SEND_SIGNALED,
      .imm_data = htonl(job->rank << 24 | message),
  };
  request.wr.rdma.remote_addr = job->address + kBufferSize / 2 + place * job->bytes;
  request.wr.rdma.rkey = job->rkey;
  struct ibv_send_wr* bad;
  return ibv_post_send(out, &request, &bad);
}

// Numbers of a message that are not the sum of what all members have sent.
static uint32_t wrong_sums(const struct job* job, uint32_t message) {
  const uint32_t words = job->bytes / 4;
  const uint32_t* data = buffer + kBufferSize / 8 + message % job->window * words;
  uint32_t wrong = 0;
  for (uint32_t at = 0; at < words; ++at) {
    uint32_t sum = 0;
    for (uint32_t rank = 0; rank < job->members; ++rank) sum += number(rank, message, at);
    wrong += ntohl(data[at]) != sum;
  }
  return wrong;
}

static void run(FILE* control, const struct job* job) {
  uint32_t posted = 0, sent = 0, arrived = 0, wrong = 0;
  const uint32_t before = (job->rank + job->members - 1) % job->members;
  const time_t end = time(NULL) + job->seconds;
  while (sent < job->messages || arrived < job->messages) {
    while (posted < job->messages && posted < arrived + job->window && posted < sent + job->window) {
      if (post_write(job, posted++)) return (void)fprintf(control, "cannot post\n");
    }
    struct ibv_wc done;
    if (ibv_poll_cq(receive_cq, 1, &done) == 1) {
      if (done.status) return (void)fprintf(control, "receive: %s\n", ibv_wc_status_str(done.status));
      if (ntohl(done.imm_data) != (before << 24 | arrived) || post_receive()) {
        return (void)fprintf(control, "message %" PRIu32 ": immediate %" PRIx32 "\n", arrived, ntohl(done.imm_data));
      }
      wrong += wrong_sums(job, arrived++);
    } else if (ibv_poll_cq(send_cq, 1, &done) == 1) {
      if (done.status) return (void)fprintf(control, "write %" PRIu32 ": %s\n", sent, ibv_wc_status_str(done.status));
      ++sent;
    } else {
      const struct timespec pause = {.tv_nsec = 100 * 1000};
      nanosleep(&pause, NULL);
      if (time(NULL) > end) {
        return (void)fprintf(control, "not done: %" PRIu32 " sent, %" PRIu32 " arrived\n", sent, arrived);
      }
    }
  }
  fprintf(control, "done %" PRIu32 " of %" PRIu32 " wrong\n", wrong, job->messages * (job->bytes / 4));
}

static void obey(FILE* control, const char* line) {
  char verb[16] = "", next[64], last[64];
  uint32_t out_peer, out_psn, in_peer, in_psn;
  struct job job;
  int used = 0;
  sscanf(line, "%15s%n", verb, &used);
  if (strcmp(verb, "open") == 0) {
    if (out) ibv_destroy_qp(out);
    if (in) ibv_destroy_qp(in);
    out = open_queue_pair();
    in = open_queue_pair();
    for (int i = 0; i < kDepth / 2; ++i) post_receive();
    fprintf(control, "qp %" PRIu32 " %" PRIu32 "\n", out->qp_num, in->qp_num);
  } else if (sscanf(line, "connect %" SCNu32 " %" SCNu32 " %63s %" SCNu32 " %" SCNu32 " %63s", &out_peer, &out_psn,
                    next, &in_peer, &in_psn, last) == 6) {
    const int failed = connect_queue_pair(out, out_peer, out_psn, next) || connect_queue_pair(in, in_peer, in_psn, last);
    fprintf(control, failed ? "cannot connect\n" : "ok\n");
  } else if (sscanf(line, "run %" SCNu32 " %" SCNu32 " %" SCNu32 " %" SCNu32 " %" SCNu32 " %" SCNu64 " %" SCNu32
                    " %" SCNu32, &job.rank, &job.members, &job.messages, &job.window, &job.bytes, &job.address,
                    &job.rkey, &job.seconds) == 8) {
    run(control, &job);
  } else {
    fprintf(control, "unknown order\n");
  }
}

int main(int argc, char** argv) {
  if (argc != 3) return 2;
  open_device();
  struct sockaddr_in to = {.sin_family = AF_INET, .sin_port = htons((uint16_t)atoi(argv[2]))};
  inet_pton(AF_INET, argv[1], &to.sin_addr);
  const int fd = socket(AF_INET, SOCK_STREAM, 0);
  if (connect(fd, (struct sockaddr*)&to, sizeof to)) die("connect");
  FILE *commands = fdopen(fd, "r"), *control = fdopen(dup(fd), "w");
  fprintf(control, "hello %" PRIuPTR " %" PRIu32 " %d\n", (uintptr_t)buffer, mr->rkey, kBufferSize);
  fflush(control);
  char line[256];
  while (fgets(line, sizeof line, commands)) {
    obey(control, line);
    fflush(control);
  }
  return 0;
}
