// SPDX-License-Identifier: Apache-2.0
// Broadcast along a binomial tree: in step k the 2^k ranks that have the slice hand it to 2^k others.
// It takes ceil(log2 n) steps, each with the whole slice, so it suits small slices.
#include <bit>
#include <cstring>

#include "collectives/stepwise.hpp"

namespace railweave {
namespace {

class Binomial final : public Stepwise {
 public:
  // Ranks are counted from the root. Rank v receives from v without its lowest set bit. Then it sends to v
  // plus each lower bit, the highest bit first, because most ranks wait behind that rank.
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
