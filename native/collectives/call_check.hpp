// SPDX-License-Identifier: Apache-2.0
// The only place that compares labels, to find ranks that make different calls.
#pragma once

#include <optional>

#include "collectives/transport.hpp"

namespace railweave {

/// Compares this rank's calls on a transport with the labels of messages that peers send or wait for.
class CallCheck {
 public:
  /// Both are members of the transport.
  CallCheck(const int& rank, TransportListener* const& listener) : rank_(rank), listener_(listener) {}

  void begin(const MessageLabel& label) { label_ = label; }
  void restart() { label_.reset(); }
  /// The label of messages that are posted now.
  const MessageLabel& label() const { return *label_; }

  /// The mismatch, if this rank takes part in the peer's slice under another label. Nothing if the labels are
  /// equal, or if this rank has not come to that slice, or is past it.
  std::optional<Failure> differing(int peer, const MessageLabel& theirs) const {
    const bool current = label_ && key_of(*label_) == key_of(theirs);
    const auto own = current ? label_ : listener_->own_label(key_of(theirs));
    return own && *own != theirs ? std::optional(mismatch(rank_, *own, peer, theirs)) : std::nullopt;
  }
  /// The mismatch of a message for which this rank has posted nothing. If this rank is past the message's
  /// slice, that is a mismatch too. A connection asks again whenever this rank has come to another call.
  std::optional<Failure> unmet(int peer, const MessageLabel& theirs) const {
    if (label_ && key_of(theirs) < key_of(*label_)) return mismatch(rank_, *label_, peer, theirs);
    return differing(peer, theirs);
  }
  /// The mismatch of a peer's message with the message that this rank has posted. If this rank also makes the
  /// peer's call, under another label, the failure names that call instead, which says more.
  Failure differing(int peer, const MessageLabel& posted, const MessageLabel& theirs) const {
    const bool other_call = posted.call.op_index != theirs.call.op_index;
    const auto of_call = other_call ? differing(peer, theirs) : std::nullopt;
    return of_call ? *of_call : mismatch(rank_, posted, peer, theirs);
  }

 private:
  const int& rank_;
  TransportListener* const& listener_;
  std::optional<MessageLabel> label_;
};

}  // namespace railweave
