// SPDX-License-Identifier: Apache-2.0
#include "collectives/stepwise.hpp"

#include <algorithm>

namespace railweave {

Stepwise::Stepwise(Transport& transport, const Slice& slice)
    : transport_(transport), slice_(slice), bytes_(slice.count * item_size(slice.call.dtype)) {}

void Stepwise::note_sent(int peer) {
  in_flight_.erase(std::find(in_flight_.begin(), in_flight_.end(), peer));
}

bool Stepwise::awaits_sent(int peer) const {
  return std::find(in_flight_.begin(), in_flight_.end(), peer) != in_flight_.end();
}

void Stepwise::note_received(int peer) {
  const auto match = [peer](const Step& step) { return step.from == peer && !step.arrived; };
  std::find_if(steps_.begin(), steps_.end(), match)->arrived = true;
}

void Stepwise::advance(Time now) {
  if (!started_) start(now);
  while (!ready() && (steps_[position_].from == kNobody || steps_[position_].arrived)) {
    end_step(position_++);
    if (ready()) {
      store();
    } else {
      begin_step(now);
    }
  }
}

void Stepwise::start(Time now) {
  started_ = true;
  load();
  for (std::size_t i = 0; i < steps_.size(); ++i) {
    if (steps_[i].from != kNobody) transport_.post_receive(steps_[i].from, incoming(i), now);
  }
  begin_step(now);
}

void Stepwise::begin_step(Time now) {
  const int to = steps_[position_].to;
  if (to == kNobody) return;
  in_flight_.push_back(to);
  transport_.post_send(to, outgoing(position_), now);
}

}  // namespace railweave
