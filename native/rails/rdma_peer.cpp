// SPDX-License-Identifier: Apache-2.0
#include "rails/rdma_peer.hpp"

#include <algorithm>
#include <utility>

#include "rails/tcp_frame.hpp"

namespace railweave {
namespace {

constexpr std::size_t kCleared = 16;  // receives that the peer knows of at once
// Each clearance and each WRITE with immediate data takes a receive of the queue pair; so does a last
// message.
constexpr std::size_t kControlBuffers = 2 * kCleared + 4;

}  // namespace

std::string why(roce::Status status) {
  switch (status) {
    case roce::Status::kRetriesExceeded:
      return "does not answer: packets were sent again and again without an acknowledgement";
    case roce::Status::kRnrRetriesExceeded:
      return "posts no receives";
    case roce::Status::kRemoteAccessError:
      return "refused access to the memory that it had offered";
    case roce::Status::kRemoteInvalidRequest:
      return "refused a request as invalid";
    case roce::Status::kBadResponse:
      return "sent a response that does not fit the request";
    default:
      return "reported an error of its own";
  }
}

RdmaPeer::RdmaPeer(RdmaPeerOptions options, RdmaConnection& connection, TransportListener& listener)
    : options_(std::move(options)),
      connection_(connection),
      listener_(listener),
      control_in_(kControlBuffers, std::vector<std::byte>(kMaxControl)) {
  for (std::size_t index = 0; index < kControlBuffers; ++index) post_control_buffer(index);
}

// ---------------------------------------------------------------- posting

void RdmaPeer::begin(const MessageLabel& label, Time now) {
  label_ = label;
  begun_ = true;
  check_waiting_clearance(now);
}

void RdmaPeer::post_send(Bytes data, Time now) {
  if (aborted_) return;
  sends_.push_back({.label = label_, .data = data});
  match(now);
  check_peer_is_there(now);
}

void RdmaPeer::post_receive(MutableBytes into, Time now) {
  if (aborted_) return;
  receives_.push_back({.label = label_, .into = into});
  clear_receives();
  check_peer_is_there(now);
}

/// What it has said goodbye before will never come.
void RdmaPeer::check_peer_is_there(Time now) {
  if (peer_left_ && needs_peer()) fail(FailureKind::kPeerLost, "has closed its communicator", now);
}

void RdmaPeer::clear_receives() {
  while (cleared_ < std::min(kCleared, receives_.size())) {
    Receive& receive = receives_[cleared_++];
    receive.sequence = next_sequence_++;
    const auto [address, rkey] = connection_.offer(receive.into);
    receive.rkey = rkey;
    const bool quiet = true;  // what the peer writes there tells that it has arrived
    send_control(encode(ClearToSend{.sequence = receive.sequence,
                                    .label = receive.label,
                                    .address = address,
                                    .length = receive.into.size(),
                                    .rkey = rkey}),
                 quiet);
  }
}

void RdmaPeer::match(Time now) {
  while (!failed_ && !clearances_.empty() && written_ < sends_.size()) {
    const ClearToSend clearance = clearances_.front();
    const Outgoing& send = sends_[written_];
    clearances_.pop_front();
    if (!agrees(send, clearance, now)) return;
    ++written_;
    // The connection only reads what it writes to the peer.
    const MutableBytes local{const_cast<std::byte*>(send.data.data()), send.data.size()};
    connection_.post({.id = next_id_++,
                      .operation = roce::Operation::kWrite,
                      .local = local,
                      .immediate = clearance.sequence,
                      .remote_address = clearance.address,
                      .rkey = clearance.rkey});
  }
  check_waiting_clearance(now);
}

bool RdmaPeer::agrees(const Outgoing& send, const ClearToSend& clearance, Time now) {
  if (send.label != clearance.label) {
    fail(mismatch(options_.own_rank, send.label, options_.rank, clearance.label), now);
    return false;
  }
  if (send.data.size() == clearance.length) return true;
  fail(FailureKind::kMismatch,
       "expects " + std::to_string(clearance.length) + " bytes where this rank sends " +
           std::to_string(send.data.size()) + ", in " + describe(send.label),
       now);
  return false;
}

/// A clearance without a send: the send will come, unless this rank is past that call or calls something else
/// there.
void RdmaPeer::check_waiting_clearance(Time now) {
  if (failed_ || aborted_ || clearances_.empty() || written_ < sends_.size()) return;
  const MessageLabel& theirs = clearances_.front().label;
  const bool come = begun_ && key_of(theirs) <= key_of(label_);
  const auto own = come ? label_ : listener_.pending_label(key_of(theirs));
  if (own && *own != theirs) fail(mismatch(options_.own_rank, *own, options_.rank, theirs), now);
}

void RdmaPeer::pass_over(const CallDescription& call, Time now) {
  if (failed_ || aborted_ || clearances_.empty() || written_ < sends_.size()) return;
  const MessageLabel& theirs = clearances_.front().label;
  if (theirs.call.op_index != call.op_index) return;
  fail(mismatch(options_.own_rank, {.call = call, .slice_count = 0}, options_.rank, theirs), now);
}

// ---------------------------------------------------------------- completions

bool RdmaPeer::drain(Time now) {
  bool any = false;
  if (const auto packets = connection_.stats().packets_received; packets != packets_seen_) {
    packets_seen_ = packets;
    heard_at_ = now;
  }
  while (const auto completion = connection_.poll()) {
    any = true;
    take(*completion, now);
  }
  if (const auto fault = connection_.fault()) fail(fault->kind, fault->message, now);
  return any;
}

void RdmaPeer::take(const roce::Completion& completion, Time now) {
  if (completion.status != roce::Status::kSuccess) return take_failure(completion, now);
  switch (completion.kind) {
    case roce::CompletionKind::kReceive:
      take_control(Bytes(control_in_[completion.id]).first(completion.byte_count), now);
      return post_control_buffer(completion.id);
    case roce::CompletionKind::kReceiveWrite:
      post_control_buffer(completion.id);
      return take_written(completion, now);
    case roce::CompletionKind::kWrite:
      note_answer();
      if (completion.id == heartbeat_id_) return heartbeat_id_.reset();
      if (aborted_) return;
      sends_.pop_front();
      --written_;
      return listener_.sent(options_.rank, now);
    default:
      note_answer();
      control_out_.erase(completion.id);
  }
}

/// Patience is for a peer that is still on its way here.
void RdmaPeer::note_answer() {
  if (!std::exchange(answered_, true)) connection_.set_patience(options_.retries, options_.max_timeout);
}

/// An RDMA WRITE of nothing: the peer's process acknowledges it, and it takes none of the peer's receives.
void RdmaPeer::heartbeat() {
  const bool ended = aborted_ || failed_ || said_goodbye_ || peer_left_;
  if (ended || !answered_ || connection_.awaits_answer()) return;
  post_heartbeat();
}

void RdmaPeer::post_heartbeat() {
  heartbeat_id_ = next_id_++;
  connection_.post({.id = *heartbeat_id_, .operation = roce::Operation::kWrite});
}

void RdmaPeer::take_failure(const roce::Completion& completion, Time now) {
  if (completion.status == roce::Status::kFlushed) return;  // what failed first has said why
  // An adapter that has failed answers so: its process may well live.
  const bool silent = completion.status == roce::Status::kRetriesExceeded ||
                      completion.status == roce::Status::kRemoteOperationalError;
  if (silent && peer_left_ && !needs_peer()) return;  // it had said so
  fail(silent ? FailureKind::kSilent : FailureKind::kInternal, why(completion.status), now);
}

void RdmaPeer::take_control(Bytes message, Time now) {
  const auto type = control_type(message);
  const auto clearance = type == ControlType::kClearToSend ? decode_clear_to_send(message) : std::nullopt;
  const auto failure =
      type == ControlType::kAbort ? decode_failure(message.subspan(kControlHeaderSize)) : std::nullopt;
  if (clearance && clearances_.size() < kCleared) {
    if (aborted_) return;
    clearances_.push_back(*clearance);
    match(now);
    check_waiting_clearance(now);
  } else if (failure) {
    fail(*failure, now);
  } else if (type == ControlType::kGoodbye) {
    peer_left_ = true;
    check_peer_is_there(now);
  } else {
    fail(FailureKind::kInternal, "sent a control message that makes no sense: is it of the same version?",
         now);
  }
}

void RdmaPeer::take_written(const roce::Completion& completion, Time now) {
  if (aborted_) return;
  if (cleared_ == 0 || completion.immediate != receives_.front().sequence ||
      completion.byte_count != receives_.front().into.size()) {
    return fail(FailureKind::kInternal, "wrote a message that it had not been cleared for", now);
  }
  connection_.take(receives_.front().rkey);
  receives_.pop_front();
  --cleared_;
  clear_receives();
  listener_.received(options_.rank, now);
}

// ---------------------------------------------------------------- ends

void RdmaPeer::abort() {
  if (std::exchange(aborted_, true)) return;
  connection_.release_buffers();
  for (std::size_t i = 0; i < cleared_; ++i) connection_.withdraw(receives_[i].rkey);
  control_out_.clear();
  sends_.clear();
  clearances_.clear();
  receives_.clear();
  written_ = cleared_ = 0;
}

void RdmaPeer::halt() {
  failed_ = true;
  for (std::size_t i = 0; i < cleared_; ++i) connection_.drop(receives_[i].rkey);
  cleared_ = 0;
  connection_.abort();
  abort();
}

void RdmaPeer::announce(const Failure& failure) {
  if (said_goodbye_) return;
  abort();  // else the failure would queue behind data that nobody will use
  send_control(encode(ControlType::kAbort, encode_failure(failure)));
}

void RdmaPeer::close() {
  if (!std::exchange(said_goodbye_, true)) send_control(encode(ControlType::kGoodbye, {}));
}

bool RdmaPeer::closed() const {
  const bool parted = aborted_ || (said_goodbye_ && peer_left_);
  return connection_.fault() || (parted && control_out_.empty() && sends_.empty());
}

void RdmaPeer::send_control(std::vector<std::byte> message, bool quiet) {
  const std::uint64_t id = next_id_++;
  const auto [entry, added] = control_out_.emplace(id, std::move(message));
  connection_.post({.id = id, .operation = roce::Operation::kSend, .local = entry->second, .quiet = quiet});
}

void RdmaPeer::post_control_buffer(std::size_t index) {
  connection_.post_receive({.id = index, .buffer = control_in_[index]});
}

void RdmaPeer::fail(FailureKind kind, const std::string& message, Time now) {
  fail({.kind = kind, .rank = options_.rank, .message = options_.name + " " + message}, now);
}

void RdmaPeer::fail(const Failure& failure, Time now) {
  if (!std::exchange(failed_, true) && !aborted_) listener_.failed(failure, now);
}

}  // namespace railweave
