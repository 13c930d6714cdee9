// SPDX-License-Identifier: Apache-2.0
#include "rails/rdma_peer.hpp"

#include <algorithm>
#include <utility>

#include "rails/tcp_frame.hpp"

namespace railweave {
namespace {

constexpr std::size_t kCleared = 16;  // receives that may be cleared at a time
constexpr std::uint16_t kShortAhead = 16;
// Each clearance, short message and WRITE with immediate data consumes a receive of the queue pair. So do a
// few kTaken messages, and a last message (kAbort or kGoodbye).
constexpr std::size_t kControlBuffers = 2 * kCleared + kShortAhead + 8;

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

RdmaPeer::RdmaPeer(RdmaPeerOptions options, const CallCheck& check, RdmaConnection& connection,
                   TransportListener& listener)
    : options_(std::move(options)),
      check_(check),
      connection_(connection),
      listener_(listener),
      own_codes_(options_.own_key),
      codes_(options_.key),
      control_size_(std::max(kMostFailure, kShortHeaderSize + options_.short_bytes) + kCodeSize),
      control_in_(std::make_unique_for_overwrite<std::byte[]>(kControlBuffers * control_size_)) {
  for (std::size_t index = 0; index < kControlBuffers; ++index) post_control_buffer(index);
}

// ---------------------------------------------------------------- posting

void RdmaPeer::post_send(Bytes data, Time now) {
  if (aborted_) return;
  sends_.push_back({.label = check_.label(), .data = data});
  match(now);
  check_peer_is_there(now);
}

void RdmaPeer::post_receive(MutableBytes into, Time now) {
  if (aborted_) return;
  receives_.push_back({.label = check_.label(), .into = into, .sequence = next_in_++});
  clear_receives();
  check_peer_is_there(now);
}

/// A peer that has said goodbye neither sends nor takes any more messages.
void RdmaPeer::check_peer_is_there(Time now) {
  if (peer_left_ && needs_peer()) fail(FailureKind::kPeerLost, "has closed its communicator", now);
}

void RdmaPeer::clear_receives() {
  while (cleared_ < std::min(kCleared, receives_.size())) {
    Receive& receive = receives_[cleared_++];
    if (!is_short(receive)) clear(receive);
  }
}

void RdmaPeer::clear(Receive& receive) {
  ClearToSend clearance{.sequence = receive.sequence, .label = receive.label, .length = receive.into.size()};
  if (!is_short(receive)) {
    const auto [address, rkey] = connection_.offer(receive.into);
    receive.rkey = clearance.rkey = rkey;
    clearance.address = address;
  }
  const bool quiet = true;  // the peer's message proves that the clearance has arrived
  send_control(encode(clearance), quiet);
}

bool RdmaPeer::clear_overdue() {
  const auto before = std::exchange(awaited_, std::nullopt);
  if (aborted_ || failed_ || receives_.empty() || !is_short(receives_.front())) return false;
  awaited_ = receives_.front().sequence;
  if (before != awaited_ || overdue_ == awaited_) return true;
  overdue_ = awaited_;
  clear(receives_.front());
  return true;
}

void RdmaPeer::match(Time now) {
  while (!failed_ && sent_ < sends_.size()) {
    const Outgoing& send = sends_[sent_];
    std::optional<ClearToSend> clearance;
    if (!clearances_.empty() && clearances_.front().sequence == next_out()) {
      clearance = clearances_.front();
      if (!agrees(send.label, send.data.size(), clearance->label, clearance->length, now)) return;
    }
    if (is_short(send) ? static_cast<std::uint16_t>(shorts_out_ - credits_received_) >= kShortAhead
                       : !clearance)
      break;
    if (clearance) clearances_.pop_front();
    if (is_short(send)) {
      send_short(send);
    } else {
      write(send, *clearance);
    }
    ++sent_;
  }
  say_goodbye();
  check_waiting(now);
}

/// The data are copied, so the send is done at once.
void RdmaPeer::send_short(const Outgoing& send) {
  ++shorts_out_;
  const bool quiet = true;
  send_control(encode(ShortMessage{.sequence = next_out(), .label = send.label, .data = send.data}), quiet);
}

void RdmaPeer::write(const Outgoing& send, const ClearToSend& clearance) {
  connection_.post({.id = next_id_++,
                    .operation = roce::Operation::kWrite,
                    .local = send.data,
                    .immediate = clearance.sequence,
                    .remote_address = clearance.address,
                    .rkey = clearance.rkey});
}

bool RdmaPeer::agrees(const MessageLabel& own, std::size_t size, const MessageLabel& theirs,
                      std::uint64_t their_size, Time now) {
  if (own != theirs) {
    fail(check_.differing(options_.rank, own, theirs), now);
  } else if (size != their_size) {
    fail(FailureKind::kMismatch,
         "has " + std::to_string(their_size) + " bytes for a message of which this rank has " +
             std::to_string(size) + ", in " + describe(own),
         now);
  }
  return own == theirs && size == their_size;
}

/// Returns the label of a message that the peer has sent or awaits, and this rank has not posted; or null.
const MessageLabel* RdmaPeer::waits_here() const {
  if (failed_ || aborted_) return nullptr;
  if (!clearances_.empty() && sent_ == sends_.size()) return &clearances_.front().label;
  return !early_.empty() && receives_.empty() ? &early_.front().label : nullptr;
}

/// This rank will still post that message, unless it is past that call or makes another call in its place.
void RdmaPeer::check_waiting(Time now) {
  const MessageLabel* const theirs = waits_here();
  if (theirs == nullptr) return;
  if (const auto failure = check_.unmet(options_.rank, *theirs)) fail(*failure, now);
}

// ---------------------------------------------------------------- completions

bool RdmaPeer::drain(Time now) {
  bool any = false;
  if (const auto packets = connection_.stats().packets_received; packets != packets_seen_) {
    packets_seen_ = packets;
    heard_at_ = now;
  }
  while (take_early(now)) any = true;
  while (const auto completion = connection_.poll()) {
    any = true;
    take(*completion, now);
  }
  while (report_sent(now)) any = true;
  if (const auto fault = connection_.fault()) fail(fault->kind, fault->message, now);
  return any;
}

/// Reports the oldest send, if it is a short message that has been sent.
bool RdmaPeer::report_sent(Time now) {
  if (sent_ == 0 || !is_short(sends_.front())) return false;
  sends_.pop_front();
  --sent_;
  ++first_out_;
  listener_.sent(options_.rank, now);
  return true;
}

void RdmaPeer::take(const roce::Completion& completion, Time now) {
  if (completion.status != roce::Status::kSuccess) return take_failure(completion, now);
  note_answer();
  switch (completion.kind) {
    case roce::CompletionKind::kReceive:
      take_control(control_buffer(completion.id).first(completion.byte_count), now);
      return post_control_buffer(completion.id);
    case roce::CompletionKind::kReceiveWrite:
      post_control_buffer(completion.id);
      return take_written(completion, now);
    case roce::CompletionKind::kWrite:
      if (completion.id == heartbeat_id_) return heartbeat_id_.reset();
      while (report_sent(now)) continue;  // short messages before it
      if (aborted_ || sent_ == 0) return;
      sends_.pop_front();
      --sent_;
      ++first_out_;
      return listener_.sent(options_.rank, now);
    default:
      control_out_.erase(completion.id);
  }
}

/// Any message counts as an answer. The first time-outs are only for a peer that has not joined yet.
void RdmaPeer::note_answer() {
  if (!std::exchange(answered_, true)) connection_.set_patience(options_.retries, options_.max_timeout);
}

/// An empty RDMA WRITE: the peer's process or device acknowledges it, and it consumes no receive.
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
  if (completion.status == roce::Status::kFlushed) return;  // the first failed request has given the reason
  if (peer_left_ && !needs_peer()) return;                  // it has said goodbye
  // A refusal shows that the peer, or another process, is there. So it is a fault of this connection.
  const bool silent = completion.status == roce::Status::kRetriesExceeded;
  fail(silent ? FailureKind::kSilent : FailureKind::kRailDown, why(completion.status), now);
}

void RdmaPeer::take_control(Bytes received, Time now) {
  const auto proven = without_code(received, codes_);
  if (!proven)
    return fail(FailureKind::kRailDown, "sent a control message that no rank of the job has written", now);
  const Bytes message = *proven;
  const auto header = decode_header(message);
  const auto is = [&header](ControlType type) { return header && header->type == type; };
  const auto clearance = is(ControlType::kClearToSend) ? decode_clear_to_send(message) : std::nullopt;
  const auto failure =
      is(ControlType::kAbort) ? decode_failure(message.subspan(kControlHeaderSize)) : std::nullopt;
  const auto whole = is(ControlType::kShort) ? decode_short(message) : std::nullopt;
  const bool sound = header && take_taken(header->taken);
  if (sound && clearance && clearances_.size() < kCleared) {
    take_clearance(*clearance, now);
  } else if (failure) {
    fail(*failure, now);
  } else if (sound && is(ControlType::kGoodbye)) {
    peer_left_ = true;
    check_peer_is_there(now);
  } else if (sound && whole && early_.size() < kShortAhead) {
    take_short(*whole, now);
  } else if (sound && is(ControlType::kTaken)) {
    match(now);
  } else {
    fail(FailureKind::kRailDown, "sent a control message that makes no sense: is it of the same version?",
         now);
  }
}

/// Returns false if `taken` is impossible: less than before, or more than was sent.
bool RdmaPeer::take_taken(std::uint16_t taken) {
  const auto on_their_way = [this](std::uint16_t met) {
    return static_cast<std::uint16_t>(shorts_out_ - met);
  };
  if (on_their_way(taken) > on_their_way(credits_received_)) return false;
  credits_received_ = taken;
  return true;
}

/// The clearance of an overdue short message may come after later clearances, or after the message has left.
void RdmaPeer::take_clearance(const ClearToSend& clearance, Time now) {
  const auto before = [](std::uint32_t one, std::uint32_t other) {
    return static_cast<std::int32_t>(one - other) < 0;
  };
  if (aborted_ || before(clearance.sequence, next_out())) return;
  const auto place = std::find_if(clearances_.begin(), clearances_.end(), [&](const ClearToSend& other) {
    return before(clearance.sequence, other.sequence);
  });
  clearances_.insert(place, clearance);
  match(now);
}

void RdmaPeer::take_short(const ShortMessage& message, Time now) {
  if (aborted_) return;
  if (early_.empty() && !receives_.empty()) {
    deliver(message.label, message.data, now);
  } else {
    early_.push_back({message.label, {message.data.begin(), message.data.end()}});
    check_waiting(now);
  }
  match(now);
}

/// Delivers the oldest short message that came before its receive, if the receive is posted now.
bool RdmaPeer::take_early(Time now) {
  if (aborted_ || failed_ || early_.empty() || receives_.empty()) return false;
  const Early early = std::move(early_.front());
  early_.pop_front();
  deliver(early.label, early.data, now);
  return true;
}

void RdmaPeer::deliver(const MessageLabel& label, Bytes data, Time now) {
  const Receive& receive = receives_.front();
  if (!agrees(receive.label, receive.into.size(), label, data.size(), now)) return;
  std::copy(data.begin(), data.end(), receive.into.begin());
  if (static_cast<std::uint16_t>(++consumed_ - credits_sent_) >= kShortAhead / 2)
    send_control(encode(ControlType::kTaken, {}), true);
  received(now);
}

void RdmaPeer::take_written(const roce::Completion& completion, Time now) {
  if (aborted_) return;
  if (receives_.empty() || !receives_.front().rkey || completion.immediate != receives_.front().sequence ||
      completion.byte_count != receives_.front().into.size()) {
    return fail(FailureKind::kRailDown, "wrote a message that it had not been cleared for", now);
  }
  connection_.take(*receives_.front().rkey);
  received(now);
}

void RdmaPeer::received(Time now) {
  receives_.pop_front();
  --cleared_;
  clear_receives();
  listener_.received(options_.rank, now);
}

// ---------------------------------------------------------------- ends

void RdmaPeer::abort() {
  if (std::exchange(aborted_, true)) return;
  // The peer does not get the forgotten messages, so the next message takes the first of their codes.
  own_codes_.take_back(connection_.release_buffers());
  for (const Receive& receive : receives_)
    if (receive.rkey) connection_.withdraw(*receive.rkey);
  control_out_.clear();
  sends_.clear();
  clearances_.clear();
  receives_.clear();
  early_.clear();
  sent_ = cleared_ = 0;
}

void RdmaPeer::halt() {
  failed_ = true;
  for (Receive& receive : receives_)
    if (const auto rkey = std::exchange(receive.rkey, std::nullopt)) connection_.drop(*rkey);
  connection_.abort();
  abort();
}

void RdmaPeer::announce(const Failure& failure) {
  if (said_goodbye_) return;
  abort();  // else the failure would queue behind data that nobody will use
  send_control(encode(ControlType::kAbort, encode_failure(failure)));
}

void RdmaPeer::close() {
  leaving_ = true;
  say_goodbye();
}

/// Sends the goodbye after all other messages, because the peer expects nothing behind it.
void RdmaPeer::say_goodbye() {
  const bool more = !failed_ && sent_ < sends_.size();
  if (!leaving_ || more || std::exchange(said_goodbye_, true)) return;
  send_control(encode(ControlType::kGoodbye, {}));
}

bool RdmaPeer::closed() const {
  const bool parted = aborted_ || (said_goodbye_ && peer_left_);
  return connection_.fault() || (parted && control_out_.empty() && sends_.empty());
}

void RdmaPeer::send_control(std::vector<std::byte> message, bool quiet) {
  const std::uint64_t id = next_id_++;
  set_taken(message, credits_sent_ = consumed_);
  append_code(message, own_codes_);
  const auto [entry, added] = control_out_.emplace(id, std::move(message));
  connection_.post({.id = id, .operation = roce::Operation::kSend, .local = entry->second, .quiet = quiet});
}

void RdmaPeer::post_control_buffer(std::size_t index) {
  connection_.post_receive({.id = index, .buffer = control_buffer(index)});
}

void RdmaPeer::fail(FailureKind kind, const std::string& message, Time now) {
  fail({.kind = kind, .rank = options_.rank, .message = options_.name + " " + message}, now);
}

void RdmaPeer::fail(const Failure& failure, Time now) {
  if (!std::exchange(failed_, true) && !aborted_) listener_.failed(failure, now);
}

}  // namespace railweave
