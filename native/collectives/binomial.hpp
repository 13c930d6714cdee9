// SPDX-License-Identifier: Apache-2.0
// Broadcast along a binomial tree: in step k the 2^k ranks that have the slice hand it to 2^k others.
// ceil(log2 n) steps, each with the whole slice: for small ones.
#pragma once

#include "collectives/stepwise.hpp"

namespace railweave {

class Binomial final : public Stepwise {
 public:
  Binomial(Transport& transport, const Slice& slice);

 private:
  Bytes outgoing(std::size_t) override { return memory_; }
  MutableBytes incoming(std::size_t) override { return memory_; }
  void load() override;
  void store() override;
};

}  // namespace railweave
