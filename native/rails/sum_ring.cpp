// SPDX-License-Identifier: Apache-2.0
#include "rails/sum_ring.hpp"

#include <algorithm>
#include <utility>

#include "rails/rdma_peer.hpp"

namespace railweave {
namespace {

constexpr std::size_t kMessages = 8;  // per window: one in flight while others are built or taken

}  // namespace

SumRing::SumRing(const SumRingOptions& options, RdmaConnection& out, RdmaConnection& into,
                 TransportListener& listener)
    : options_(options),
      out_(out),
      into_(into),
      listener_(listener),
      messages_(std::min(kMessages, options.window_packets)),
      message_packets_(options.window_packets / messages_),
      outbox_(messages_ * message_bytes()),
      inbox_(into.region(messages_ * message_bytes())),
      next_packet_(options.next_packet) {
  for (std::size_t i = 0; i < messages_; ++i) into_.post_receive({});
}

MutableBytes SumRing::room() {
  const bool full = posted_ == taken_ + messages_ || posted_ == written_ + messages_;
  return full || failed_ ? MutableBytes{} : MutableBytes(outbox_).subspan(place(posted_), message_bytes());
}

void SumRing::post(std::size_t bytes) {
  out_.post({.id = posted_,
             .operation = roce::Operation::kWrite,
             .local = MutableBytes(outbox_).subspan(place(posted_), bytes),
             .immediate = static_cast<std::uint32_t>(posted_),
             .remote_address = target_.address + place(posted_),
             .rkey = target_.rkey});
  ++posted_;
  next_packet_ += bytes / packet_bytes();
  sizes_.push_back(bytes);
}

Bytes SumRing::sum() const {
  return arrived_ == taken_ || failed_ ? Bytes{} : Bytes(inbox_.bytes).subspan(place(taken_), sizes_.front());
}

void SumRing::taken() {
  ++taken_;
  sizes_.pop_front();
}

bool SumRing::drain(Time now) {
  bool any = false;
  for (; const auto completion = out_.poll(); any = true)
    take(*completion, options_.next_rank, options_.next_name, now);
  for (; const auto completion = into_.poll(); any = true)
    take(*completion, options_.rank_before, options_.name_before, now);
  check(out_, options_.next_rank, options_.next_name, now);
  check(into_, options_.rank_before, options_.name_before, now);
  return any;
}

void SumRing::check(const RdmaConnection& connection, int rank, const std::string& name, Time now) {
  if (const auto fault = connection.fault()) fail(rank, name + " " + fault->message, now);
}

void SumRing::take(const roce::Completion& completion, int rank, const std::string& name, Time now) {
  if (failed_ || completion.status == roce::Status::kFlushed) return;
  if (completion.status != roce::Status::kSuccess)
    return fail(rank, name + " " + why(completion.status), now);
  if (completion.kind == roce::CompletionKind::kWrite) {
    ++written_;
    return;
  }
  into_.post_receive({});
  const std::size_t ahead = arrived_ - taken_;
  if (ahead == sizes_.size() || completion.byte_count != sizes_[ahead] ||
      completion.immediate != static_cast<std::uint32_t>(arrived_))
    return fail(rank, name + " wrote a sum to which this rank has not contributed", now);
  ++arrived_;
}

void SumRing::halt() {
  failed_ = true;
  out_.abort();
  into_.abort();
}

void SumRing::fail(int rank, const std::string& message, Time now) {
  if (std::exchange(failed_, true)) return;
  const std::string where = ", on the connection on which the switch adds";
  listener_.failed({.kind = FailureKind::kSilent, .rank = rank, .message = message + where}, now);
}

}  // namespace railweave
