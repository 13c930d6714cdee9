// SPDX-License-Identifier: Apache-2.0
#if __has_include(<infiniband/verbs.h>)
#include "rails/verbs_queue_pair.hpp"

#include <arpa/inet.h>

#include <algorithm>
#include <cstring>
#include <utility>

#include "core/descriptor.hpp"

namespace railweave {
namespace {

constexpr std::uint32_t kInline = 72;  // bytes that go with the request: a clearance with its code
constexpr int kQuietRun = 16;          // most requests in a row without a completion report
constexpr std::uint32_t kReceiveTag = 1u << 31;
// Delay of the first packet. Ranks join within milliseconds of each other. A packet that comes before the
// peer has joined is sent again only after the ACK timeout, which is much longer.
constexpr Duration kRanksApart = 20 * kMillisecond;
constexpr std::uint8_t kRetries = 6;            // rdma_rxe takes 7 as unlimited; the specification, as seven
constexpr std::uint8_t kMostRetries = 7;        // of summed connections, which wait for all ranks
constexpr std::uint8_t kForEver = 7;            // RNR retries without limit
constexpr std::uint8_t kReceiverNotReady = 12;  // 0.64 ms
constexpr std::uint8_t kHops = 64;

/// Returns the peer's fault, as far as the device can know it. Returns nothing if this side may be at fault.
std::optional<roce::Status> status_of(ibv_wc_status status) {
  switch (status) {
    case IBV_WC_RETRY_EXC_ERR:
      return roce::Status::kRetriesExceeded;
    case IBV_WC_RNR_RETRY_EXC_ERR:
      return roce::Status::kRnrRetriesExceeded;
    case IBV_WC_REM_ACCESS_ERR:
      return roce::Status::kRemoteAccessError;
    case IBV_WC_REM_INV_REQ_ERR:
      return roce::Status::kRemoteInvalidRequest;
    case IBV_WC_REM_OP_ERR:
      return roce::Status::kRemoteOperationalError;
    case IBV_WC_BAD_RESP_ERR:
      return roce::Status::kBadResponse;
    default:
      return std::nullopt;
  }
}

ibv_mtu mtu_of(std::size_t bytes) {
  return bytes == 256    ? IBV_MTU_256
         : bytes == 512  ? IBV_MTU_512
         : bytes == 1024 ? IBV_MTU_1024
         : bytes == 2048 ? IBV_MTU_2048
                         : IBV_MTU_4096;
}

template <typename Object>
Object* made(Object* object, const VerbsPort& port, const char* what) {
  if (object == nullptr) raise_errno("device '" + port.device + "' makes no " + what);
  return object;
}

ibv_qp* make_pair(const VerbsPort& port, ibv_pd* domain, std::uint32_t& inline_bytes) {
  for (const std::uint32_t wanted : {kInline, 0u}) {  // some devices refuse a size that others lower
    ibv_qp_init_attr attributes{};
    attributes.send_cq = attributes.recv_cq = port.queue;
    attributes.qp_type = IBV_QPT_RC;
    attributes.cap = {.max_send_wr = VerbsQueuePair::kSends,
                      .max_recv_wr = VerbsQueuePair::kReceives,
                      .max_send_sge = 1,
                      .max_recv_sge = 1,
                      .max_inline_data = wanted};
    ibv_qp* pair = verbs().create_qp(domain, &attributes);
    inline_bytes = pair != nullptr ? attributes.cap.max_inline_data : 0;
    if (pair != nullptr || wanted == 0) return pair;
  }
  return nullptr;
}

}  // namespace

VerbsQueuePair::VerbsQueuePair(const VerbsPort& port, RdmaEndpointStats& wire)
    : port_(port),
      wire_(wire),
      domain_(made(verbs().alloc_pd(port.context), port, "protection domain")),
      memory_(domain_.get()),
      pair_(made(make_pair(port, domain_.get(), inline_bytes_), port, "queue pair")) {}

VerbsQueuePair::~VerbsQueuePair() { pair_.reset(); }  // before the memory that it may write

// ---------------------------------------------------------------- joining

void VerbsQueuePair::join(const roce::QueuePairOptions& options, roce::Ipv4Address peer, Time now) {
  options_ = options;
  peer_ = peer;
  reset();
  fault_.reset();
  dead_ = answered_ = reported_ = false;
  opens_at_ = now + kRanksApart;
  patient_until_ = now + options.retries * options.max_timeout;
  bring_up();
}

// The states of the specification's queue pair, in order: volume 1, section 10.3.1.
void VerbsQueuePair::bring_up() {
  ibv_qp_attr attributes{};
  attributes.qp_state = IBV_QPS_RESET;
  modify(attributes, IBV_QP_STATE, "reset");
  ++generation_;
  posted_ = 0;

  attributes.qp_state = IBV_QPS_INIT;
  attributes.port_num = port_.port;
  attributes.qp_access_flags = IBV_ACCESS_REMOTE_WRITE;
  modify(attributes, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS, "initialise");

  attributes.qp_state = IBV_QPS_RTR;
  attributes.path_mtu = mtu_of(port_.path_mtu);
  attributes.dest_qp_num = options_.peer_qpn;
  attributes.rq_psn = options_.receive_psn & roce::kPsnMask;
  attributes.min_rnr_timer = kReceiverNotReady;
  attributes.ah_attr.is_global = 1;
  attributes.ah_attr.port_num = port_.port;
  attributes.ah_attr.grh.sgid_index = port_.gid_index;
  attributes.ah_attr.grh.hop_limit = kHops;
  attributes.ah_attr.grh.traffic_class = port_.traffic_class;
  std::uint8_t* gid = attributes.ah_attr.grh.dgid.raw;  // ::ffff:a.b.c.d
  gid[10] = gid[11] = 0xff;
  const std::uint32_t address = htonl(peer_);
  std::memcpy(gid + 12, &address, sizeof address);
  modify(attributes,
         IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN |
             IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER,
         "find the way to");

  attributes.qp_state = IBV_QPS_RTS;
  attributes.sq_psn = options_.send_psn & roce::kPsnMask;
  attributes.timeout = port_.timeout;
  attributes.retry_cnt = options_.summed ? kMostRetries : kRetries;
  attributes.rnr_retry = kForEver;
  modify(attributes,
         IBV_QP_STATE | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_SQ_PSN |
             IBV_QP_MAX_QP_RD_ATOMIC,
         "open");
  for (const Receive& receive : receives_) hand_over(receive);
}

void VerbsQueuePair::modify(ibv_qp_attr& attributes, int mask, const char* what) {
  const int error = verbs().modify_qp(pair_.get(), &attributes, mask);
  if (error == 0) return;
  in_addr peer{htonl(peer_)};
  char text[INET_ADDRSTRLEN];
  inet_ntop(AF_INET, &peer, text, sizeof text);
  throw std::system_error(error, std::generic_category(),
                          "device '" + port_.device + "' cannot " + what + " the connection with " + text);
}

// ---------------------------------------------------------------- posting

void VerbsQueuePair::post(const roce::WorkRequest& request) {
  if (dead_) return completions_.push_back({.id = request.id, .status = roce::Status::kFlushed});
  // The first request is always reported. Without it, a rank that only receives does not learn that the peer
  // answers.
  const bool signalled = !request.quiet || !reported_ || ++quiet_ >= kQuietRun;
  if (signalled) quiet_ = 0;
  signalled_ += signalled ? 1 : 0;
  Send send{.request = request, .block = {}, .signalled = signalled};
  if (!request.local.empty()) {
    send.block = block(request.local.size());
    std::copy_n(request.local.begin(), send.block.bytes.empty() ? 0 : request.local.size(),
                send.block.bytes.begin());
  }
  sends_.push_back(send);
}

void VerbsQueuePair::post_receive(const roce::ReceiveRequest& request) {
  if (dead_) return;
  receives_.push_back({.request = request, .block = block(request.buffer.size())});
  if (!dead_) hand_over(receives_.back());
}

/// Returns an empty block if there is no memory; then the queue pair is dead.
VerbsMemory::Block VerbsQueuePair::block(std::size_t bytes) {
  try {
    return memory_.get(bytes);
  } catch (const std::system_error& error) {
    died(error.what());
    return {};
  }
}

void VerbsQueuePair::transmit(Time now) {
  if (now < opens_at_ || dead_) return;
  while (posted_ < sends_.size() && posted_ < kSends) {
    if (!hand_over(sends_[posted_], first_send_ + static_cast<std::uint32_t>(posted_))) return;
    ++posted_;
  }
}

bool VerbsQueuePair::hand_over(Send& send, std::uint32_t sequence) {
  const auto bytes = static_cast<std::uint32_t>(send.request.local.size());
  ibv_sge place{};
  ibv_send_wr request{};
  request.wr_id = tag(sequence & ~kReceiveTag);
  if (bytes > 0) {
    place = {.addr = reinterpret_cast<std::uintptr_t>(send.block.bytes.data()),
             .length = bytes,
             .lkey = send.block.region->lkey};
    request.sg_list = &place;
    request.num_sge = 1;
  }
  request.opcode = send.request.operation == roce::Operation::kSend ? IBV_WR_SEND
                   : send.request.immediate                         ? IBV_WR_RDMA_WRITE_WITH_IMM
                                                                    : IBV_WR_RDMA_WRITE;
  request.imm_data = htonl(send.request.immediate.value_or(0));
  request.wr.rdma = {.remote_addr = send.request.remote_address, .rkey = send.request.rkey};
  // The same rule as in user space, because a switch adds only packets of the same kind.
  const bool awaited = request.opcode == IBV_WR_SEND && !send.request.quiet;
  if (awaited || send.request.immediate) request.send_flags |= IBV_SEND_SOLICITED;
  if (send.signalled) request.send_flags |= IBV_SEND_SIGNALED;
  if (bytes > 0 && bytes <= inline_bytes_) request.send_flags |= IBV_SEND_INLINE;
  ibv_send_wr* bad = nullptr;
  if (const int error = ibv_post_send(pair_.get(), &request, &bad)) {
    died(std::generic_category().message(error));
    return false;
  }
  count_sent(send);
  return true;
}

void VerbsQueuePair::hand_over(const Receive& receive) {
  ibv_sge place{.addr = reinterpret_cast<std::uintptr_t>(receive.block.bytes.data()),
                .length = static_cast<std::uint32_t>(receive.request.buffer.size()),
                .lkey = receive.block.region->lkey};
  ibv_recv_wr request{.wr_id = tag(kReceiveTag), .next = nullptr, .sg_list = &place, .num_sge = 1};
  ibv_recv_wr* bad = nullptr;
  if (const int error = ibv_post_recv(pair_.get(), &request, &bad))
    died(std::generic_category().message(error));
}

void VerbsQueuePair::count_sent(const Send& send) {
  const std::size_t bytes = send.request.local.size();
  const auto frames = static_cast<std::uint64_t>(roce::packets_for(bytes, port_.path_mtu));
  const bool write = send.request.operation == roce::Operation::kWrite;
  wire_.frames_sent += frames;
  wire_.bytes_sent += bytes + frames * (roce::kFrameHeaderSize + roce::kBthSize + roce::kIcrcSize) +
                      (write ? roce::kRethSize : 0) + (send.request.immediate ? roce::kImmediateSize : 0);
  if (write) stats_.payload_bytes += bytes;
}

VerbsQueuePair::Offer VerbsQueuePair::offer(MutableBytes into) {
  const Block block = this->block(into.size());
  if (block.region == nullptr) return {};
  offers_[block.region->rkey] = {.into = into, .block = block};
  return {.address = reinterpret_cast<std::uintptr_t>(block.bytes.data()), .rkey = block.region->rkey};
}

void VerbsQueuePair::take(std::uint32_t rkey) {
  const auto found = offers_.find(rkey);
  if (found == offers_.end()) return;
  const auto& [into, block] = found->second;
  std::copy_n(block.bytes.begin(), into.size(), into.begin());
  memory_.give(block);
  offers_.erase(found);
}

void VerbsQueuePair::withdraw(std::uint32_t rkey) {
  if (const auto found = offers_.find(rkey); found != offers_.end()) found->second.into = {};
}

VerbsQueuePair::Region VerbsQueuePair::region(std::size_t bytes) {
  const Block block = this->block(bytes);
  if (block.region == nullptr) return {};
  return {.bytes = block.bytes, .rkey = block.region->rkey};
}

// ---------------------------------------------------------------- completions

std::optional<roce::Completion> VerbsQueuePair::poll() {
  if (completions_.empty()) return std::nullopt;
  const roce::Completion completion = completions_.front();
  completions_.pop_front();
  return completion;
}

void VerbsQueuePair::complete(const ibv_wc& done, Time now) {
  if (done.wr_id >> 32 != generation_) return;
  if (done.status != IBV_WC_SUCCESS) return complete_badly(done, now);
  answered_ = true;
  ++stats_.packets_received;  // at least one
  if (done.wr_id & kReceiveTag) return complete_receive(done);
  complete_sends(static_cast<std::uint32_t>(done.wr_id));
  transmit(now);
}

/// Completes all sends up to `last`, because they are carried out in order.
void VerbsQueuePair::complete_sends(std::uint32_t last) {
  reported_ = true;
  while (posted_ > 0) {
    const Send send = sends_.front();
    const std::uint32_t sequence = first_send_ & ~kReceiveTag;
    sends_.pop_front();
    ++first_send_;
    --posted_;
    signalled_ -= send.signalled ? 1 : 0;
    if (send.block.region != nullptr) memory_.give(send.block);
    const bool write = send.request.operation == roce::Operation::kWrite;
    completions_.push_back({.id = send.request.id,
                            .kind = write ? roce::CompletionKind::kWrite : roce::CompletionKind::kSend,
                            .byte_count = static_cast<std::uint32_t>(send.request.local.size())});
    if (sequence == last) return;
  }
}

void VerbsQueuePair::complete_receive(const ibv_wc& done) {
  if (receives_.empty()) return;
  const Receive receive = receives_.front();
  receives_.pop_front();
  const bool written = done.opcode == IBV_WC_RECV_RDMA_WITH_IMM;
  const auto frames = static_cast<std::uint64_t>(roce::packets_for(done.byte_len, port_.path_mtu));
  wire_.frames_received += frames;
  wire_.bytes_received += done.byte_len +
                          frames * (roce::kFrameHeaderSize + roce::kBthSize + roce::kIcrcSize) +
                          (written ? roce::kRethSize + roce::kImmediateSize : 0);
  if (!written) {
    const std::size_t bytes = std::min<std::size_t>(done.byte_len, receive.request.buffer.size());
    std::copy_n(receive.block.bytes.begin(), bytes, receive.request.buffer.begin());
  }
  memory_.give(receive.block);
  completions_.push_back(
      {.id = receive.request.id,
       .kind = written ? roce::CompletionKind::kReceiveWrite : roce::CompletionKind::kReceive,
       .byte_count = done.byte_len,
       .immediate = written ? std::optional<std::uint32_t>(ntohl(done.imm_data)) : std::nullopt});
}

// A peer that has not joined yet does not answer, and the device gives up before this rank does. Both ends
// are then still at their first packet numbers, so the same requests may be sent again. Not so on a summed
// connection, where the switch may have taken packets.
void VerbsQueuePair::complete_badly(const ibv_wc& done, Time now) {
  if (dead_) return;
  if (done.status == IBV_WC_RETRY_EXC_ERR && !answered_ && !options_.summed && now < patient_until_) {
    try {
      bring_up();
    } catch (const std::system_error& error) {
      died(error.what());
    }
    return transmit(now);
  }
  const auto status = status_of(done.status);
  if (!status || (done.wr_id & kReceiveTag)) return died(verbs().wc_status_str(done.status));
  const auto kind = sends_.empty() || sends_.front().request.operation == roce::Operation::kSend
                        ? roce::CompletionKind::kSend
                        : roce::CompletionKind::kWrite;
  completions_.push_back({.kind = kind, .status = *status});
  died(verbs().wc_status_str(done.status));
}

void VerbsQueuePair::died(const std::string& why) {
  if (std::exchange(dead_, true)) return;
  fault_ = Fault{FailureKind::kRailDown, "is cut off: queue pair " + std::to_string(number()) +
                                             " of device '" + port_.device + "' has died: " + why};
}

// ---------------------------------------------------------------- ends

/// Requests that the device already has go on from copies.
std::size_t VerbsQueuePair::release_buffers() {
  std::size_t forgotten = 0;
  while (sends_.size() > posted_) {
    const Send& send = sends_.back();
    if (send.request.operation == roce::Operation::kSend) ++forgotten;
    if (send.block.region != nullptr) memory_.give(send.block);
    signalled_ -= send.signalled ? 1 : 0;
    sends_.pop_back();
  }
  return forgotten;
}

void VerbsQueuePair::abort() {
  ibv_qp_attr attributes{};
  attributes.qp_state = IBV_QPS_RESET;
  verbs().modify_qp(pair_.get(), &attributes, IBV_QP_STATE);  // no check: a lost device does nothing any more
  dead_ = true;
  reset();
}

void VerbsQueuePair::reset() {
  ++generation_;
  sends_.clear();
  receives_.clear();
  offers_.clear();
  completions_.clear();
  memory_.take_back();
  posted_ = signalled_ = 0;
  first_send_ = 0;
  quiet_ = 0;
  opens_at_ = kNever;
}

}  // namespace railweave
#endif
