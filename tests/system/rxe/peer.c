// SPDX-License-Identifier: Apache-2.0
// The verbs program at the other end of the rxe test. It runs in a virtual machine, connects to a TCP address and obeys
// orders, one per line. It answers each order with one line. Usage: peer ADDRESS PORT
//   open                            a new queue pair                      -> "qp NUMBER PSN"
//   connect QPN PSN MTU ADDRESS     to RTS, towards that IPv4 address     -> "ok"
//   fill SEED OFFSET LENGTH         a pattern into the buffer             -> "ok"
//   check SEED OFFSET LENGTH        compare with the pattern              -> "ok" or "differs at N"
//   receive OFFSET LENGTH           post a receive                        -> "ok"
//   write|read|send ADDRESS RKEY OFFSET LENGTH [IMMEDIATE]                -> status, when it has completed
//   wait                            for a receive                         -> "STATUS BYTES IMMEDIATE"
#include <arpa/inet.h>
#include <infiniband/verbs.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

enum { kBufferSize = 8 << 20, kDepth = 64, kFirstPsn = 0xfffff0, kDeadlineSeconds = 60 };

static struct ibv_context* context;
static struct ibv_pd* pd;
static struct ibv_cq *send_cq, *receive_cq;
static struct ibv_mr* mr;
static struct ibv_qp* qp;
static uint8_t* buffer;
static int gid_index = -1;

static void die(const char* what) {
  perror(what);
  exit(1);
}

// Each byte of the pattern depends only on the seed and its position. The test has the same formula.
static uint8_t pattern(uint32_t seed, uint32_t at) { return (uint8_t)(((seed + at) * 2654435761u) >> 16); }

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
  mr = ibv_reg_mr(pd, buffer, kBufferSize, IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ);
  if (!mr) die("ibv_reg_mr");
}

// The GID of the IPv4 address: ::ffff:a.b.c.d
static void find_gid(void) {
  static const uint8_t mapped[12] = {[10] = 0xff, [11] = 0xff};
  union ibv_gid gid;
  for (int index = 0; index < 16 && gid_index < 0; ++index) {
    if (ibv_query_gid(context, 1, index, &gid) == 0 && memcmp(gid.raw, mapped, sizeof mapped) == 0) gid_index = index;
  }
  if (gid_index < 0) die("no IPv4 GID");
}

static int open_queue_pair(void) {
  struct ibv_qp_init_attr init = {
      .send_cq = send_cq,
      .recv_cq = receive_cq,
      .qp_type = IBV_QPT_RC,
      .cap = {.max_send_wr = kDepth, .max_recv_wr = kDepth, .max_send_sge = 1, .max_recv_sge = 1},
  };
  if (qp) ibv_destroy_qp(qp);
  qp = ibv_create_qp(pd, &init);
  if (!qp) return -1;
  struct ibv_qp_attr attr = {
      .qp_state = IBV_QPS_INIT,
      .port_num = 1,
      .qp_access_flags = IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ,
  };
  return ibv_modify_qp(qp, &attr, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS);
}

static int connect_queue_pair(uint32_t qpn, uint32_t psn, int mtu, const char* address) {
  struct ibv_qp_attr attr = {
      .qp_state = IBV_QPS_RTR,
      .path_mtu = mtu == 256 ? IBV_MTU_256 : mtu == 512 ? IBV_MTU_512 : IBV_MTU_1024,
      .dest_qp_num = qpn,
      .rq_psn = psn,
      .max_dest_rd_atomic = 16,
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
  attr.timeout = 17;  // 0.5 s: an emulated host that waits for a core must not repeat packets that have arrived
  attr.retry_cnt = 7;
  attr.rnr_retry = 7;
  attr.sq_psn = kFirstPsn;
  attr.max_rd_atomic = 16;
  return ibv_modify_qp(qp, &attr, IBV_QP_STATE | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY |
                                      IBV_QP_SQ_PSN | IBV_QP_MAX_QP_RD_ATOMIC);
}

static int await(struct ibv_cq* cq, struct ibv_wc* done) {
  struct timespec pause = {.tv_nsec = 200 * 1000};
  for (time_t end = time(NULL) + kDeadlineSeconds; time(NULL) < end; nanosleep(&pause, NULL)) {
    const int found = ibv_poll_cq(cq, 1, done);
    if (found != 0) return found;
  }
  return 0;
}

static int post_receive(uint32_t offset, uint32_t length) {
  struct ibv_sge place = {.addr = (uintptr_t)buffer + offset, .length = length, .lkey = mr->lkey};
  struct ibv_recv_wr request = {.sg_list = &place, .num_sge = 1}, *bad;
  return ibv_post_recv(qp, &request, &bad);
}

static const char* carry_out(struct ibv_send_wr* request) {
  struct ibv_send_wr* bad;
  struct ibv_wc done;
  request->send_flags = IBV_SEND_SIGNALED;
  if (ibv_post_send(qp, request, &bad)) return "cannot post";
  return await(send_cq, &done) == 1 ? ibv_wc_status_str(done.status) : "no completion";
}

static void transfer(FILE* control, const char* verb, const char* arguments) {
  uint64_t address = 0;
  uint32_t rkey = 0, offset = 0, length = 0, immediate = 0;
  const int given = sscanf(arguments, "%" SCNu64 " %" SCNu32 " %" SCNu32 " %" SCNu32 " %" SCNu32, &address, &rkey,
                           &offset, &length, &immediate);
  struct ibv_sge place = {.addr = (uintptr_t)buffer + offset, .length = length, .lkey = mr->lkey};
  struct ibv_send_wr request = {.sg_list = &place, .num_sge = 1, .imm_data = htonl(immediate)};
  request.wr.rdma.remote_addr = address;
  request.wr.rdma.rkey = rkey;
  if (strcmp(verb, "read") == 0) {
    request.opcode = IBV_WR_RDMA_READ;
  } else if (strcmp(verb, "write") == 0) {
    request.opcode = given == 5 ? IBV_WR_RDMA_WRITE_WITH_IMM : IBV_WR_RDMA_WRITE;
  } else {
    request.opcode = given == 5 ? IBV_WR_SEND_WITH_IMM : IBV_WR_SEND;
  }
  fprintf(control, "%s\n", carry_out(&request));
}

static void check(FILE* control, uint32_t seed, uint32_t offset, uint32_t length) {
  for (uint32_t at = 0; at < length; ++at) {
    if (buffer[offset + at] != pattern(seed, at)) {
      fprintf(control, "differs at %" PRIu32 "\n", at);
      return;
    }
  }
  fprintf(control, "ok\n");
}

static void obey(FILE* control, const char* line) {
  char verb[16] = "", address[64];
  uint32_t a = 0, b = 0, c = 0;
  int used = 0;
  sscanf(line, "%15s%n", verb, &used);
  const char* arguments = line + used;
  const int numbers = sscanf(arguments, "%" SCNu32 " %" SCNu32 " %" SCNu32, &a, &b, &c);
  if (strcmp(verb, "open") == 0) {
    if (open_queue_pair()) die("queue pair");
    fprintf(control, "qp %" PRIu32 " %d\n", qp->qp_num, kFirstPsn);
  } else if (strcmp(verb, "connect") == 0) {
    const int all = sscanf(arguments, "%" SCNu32 " %" SCNu32 " %" SCNu32 " %63s", &a, &b, &c, address);
    fprintf(control, all == 4 && !connect_queue_pair(a, b, (int)c, address) ? "ok\n" : "cannot connect\n");
  } else if (strcmp(verb, "fill") == 0) {
    for (uint32_t at = 0; at < c; ++at) buffer[b + at] = pattern(a, at);
    fprintf(control, "ok\n");
  } else if (strcmp(verb, "check") == 0) {
    check(control, a, b, c);
  } else if (strcmp(verb, "receive") == 0) {
    fprintf(control, numbers == 2 && !post_receive(a, b) ? "ok\n" : "cannot post\n");
  } else if (strcmp(verb, "wait") == 0) {
    struct ibv_wc done;
    if (await(receive_cq, &done) == 1) {
      fprintf(control, "%s %" PRIu32 " %" PRIu32 "\n", ibv_wc_status_str(done.status), done.byte_len,
              done.wc_flags & IBV_WC_WITH_IMM ? ntohl(done.imm_data) : 0);
    } else {
      fprintf(control, "no completion\n");
    }
  } else {
    transfer(control, verb, arguments);
  }
}

int main(int argc, char** argv) {
  if (argc != 3) return 2;
  open_device();
  find_gid();
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
