// SPDX-License-Identifier: Apache-2.0
#include "collectives/recursive_doubling.hpp"

#include <algorithm>
#include <bit>
#include <cstring>

#include "collectives/reduce.hpp"

namespace railweave {

RecursiveDoubling::RecursiveDoubling(Transport& transport, const Slice& slice)
    : transport_(transport), slice_(slice), bytes_(slice.count * item_size(slice.call.dtype)) {
  plan(transport.rank(), transport.world_size());
  memory_.resize((2 * steps_.size() + 1) * bytes_);
}

void RecursiveDoubling::plan(int rank, int ranks) {
  const int core = static_cast<int>(std::bit_floor(static_cast<unsigned>(ranks)));
  const int extra = ranks - core;  // the first 2 * extra ranks fold pairwise, even into odd
  const bool folds = rank < 2 * extra;
  if (folds && rank % 2 == 0) {
    steps_ = {{What::kSend, rank + 1}, {What::kAdopt, rank + 1}};
    return;
  }
  if (folds) steps_.push_back({What::kReceive, rank - 1});
  const int place =
      folds ? rank / 2 : rank - extra;  // among those that take part in the doubling, in order of rank
  for (int bit = 1; bit < core; bit *= 2) {
    const int partner = place ^ bit;
    steps_.push_back({What::kExchange, partner < extra ? 2 * partner + 1 : partner + extra});
  }
  if (folds) steps_.push_back({What::kSend, rank - 1});
}

void RecursiveDoubling::note_sent(int peer) { std::erase(in_flight_, peer); }

bool RecursiveDoubling::awaits_sent(int peer) const {
  return std::find(in_flight_.begin(), in_flight_.end(), peer) != in_flight_.end();
}

void RecursiveDoubling::note_received(int peer) {
  // A rank receives from a peer at most once.
  const auto match = [peer](const Step& step) { return receives(step) && step.peer == peer; };
  std::find_if(steps_.begin(), steps_.end(), match)->arrived = true;
}

void RecursiveDoubling::advance(Time now) {
  if (!started_) start(now);
  while (!ready() && (!receives(steps_[position_]) || steps_[position_].arrived)) {
    end_step();
    ++position_;
    if (!ready()) begin_step(now);
    if (ready()) {
      std::memcpy(slice_.output, own(position_), bytes_);
      finish(slice_.call.dtype, slice_.call.op, slice_.output, slice_.count, slice_.world_size);
    }
  }
}

void RecursiveDoubling::start(Time now) {
  started_ = true;
  std::memcpy(own(0), slice_.input, bytes_);
  for (std::size_t i = 0; i < steps_.size(); ++i) {
    if (receives(steps_[i])) transport_.post_receive(steps_[i].peer, {incoming(i), bytes_}, now);
  }
  begin_step(now);
}

void RecursiveDoubling::begin_step(Time now) {
  const Step& step = steps_[position_];
  if (!sends(step)) return;
  in_flight_.push_back(step.peer);
  transport_.post_send(step.peer, {own(position_), bytes_}, now);
}

// What was sent stays as it is until it has left: every step leaves its outcome in a place of its own.
void RecursiveDoubling::end_step() {
  const Step& step = steps_[position_];
  std::byte* into = own(position_ + 1);
  if (!receives(step) || step.what == What::kAdopt) {
    std::memcpy(into, receives(step) ? incoming(position_) : own(position_), bytes_);
    return;
  }
  const bool lower = transport_.rank() < step.peer;
  const std::byte* low = lower ? own(position_) : incoming(position_);
  const std::byte* high = lower ? incoming(position_) : own(position_);
  reduce(slice_.call.dtype, slice_.call.op, into, low, high, slice_.count);
}

}  // namespace railweave
