// SPDX-License-Identifier: Apache-2.0
// Broadcast along a binomial tree: in step k the 2^k ranks that have the slice hand it to 2^k others.
// ceil(log2 n) steps, each with the whole slice: for small ones.
#include <bit>
#include <cstring>

#include "collectives/stepwise.hpp"

namespace railweave {
namespace {

class Binomial final : public Stepwise {
 public:
  // Ranks are counted from the root: v receives from v without its lowest bit, and then hands on to those
  // that differ from it in one of the bits below that, the highest first, as most ranks wait behind it.
  Binomial(Transport& transport, const Slice& slice) : Stepwise(transport, slice) {
    const int ranks = transport.world_size();
    const int root = slice.call.root;
    const int own = (transport.rank() - root + ranks) % ranks;
    const auto rank_of = [=](int place) { return (place + root) % ranks; };
    const int above = static_cast<int>(std::bit_ceil(static_cast<unsigned>(ranks)));
    const int lowest_bit = own == 0 ? above : own & -own;
    if (own != 0) steps_.push_back({.from = rank_of(own - lowest_bit)});
    for (int bit = lowest_bit / 2; bit > 0; bit /= 2) {
      if (own + bit < ranks) steps_.push_back({.to = rank_of(own + bit)});
    }
    memory_.resize(bytes_);
  }

 private:
  Bytes outgoing(std::size_t) override { return memory_; }
  MutableBytes incoming(std::size_t) override { return memory_; }
  void load() override {
    if (transport_.rank() == slice_.call.root) std::memcpy(memory_.data(), slice_.input, bytes_);
  }
  void store() override { std::memmove(slice_.output, memory_.data(), bytes_); }
};

}  // namespace

std::unique_ptr<Algorithm> make_binomial(Transport& transport, const Slice& slice) {
  return std::make_unique<Binomial>(transport, slice);
}

}  // namespace railweave
