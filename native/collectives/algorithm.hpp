// SPDX-License-Identifier: Apache-2.0
// One collective on one rail, as a machine that posts messages and is told of their completion.
#pragma once

#include "collectives/transport.hpp"
#include "core/slice.hpp"

namespace railweave {

/// Does no I/O of its own and reads no clock. The owner notes completions as they come and then calls
/// `advance`, never from inside another `advance`.
class Algorithm {
 public:
  virtual ~Algorithm() = default;
  virtual void note_sent(int peer) = 0;
  /// A send to this peer has been posted and is not noted as done.
  virtual bool awaits_sent(int peer) const = 0;
  virtual void note_received(int peer) = 0;
  /// Posts what can be posted and reduces what has come. The first call starts the collective.
  virtual void advance(Time now) = 0;
  /// The output holds the result, the slice's memory is the caller's again, and every message has been
  /// posted.
  virtual bool ready() const = 0;
  /// Ready, and no message is on its way any more: the machine may go.
  virtual bool finished() const = 0;
};

}  // namespace railweave
