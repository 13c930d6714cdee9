// SPDX-License-Identifier: Apache-2.0
// railweave._native.collectives: the names of collectives, and how rails carry them.
#include <nanobind/nanobind.h>

#include "bindings/values.hpp"
#include "collectives/choose.hpp"
#include "core/collective.hpp"
#include "rails/sum_all_reduce.hpp"

namespace nb = nanobind;
using namespace nb::literals;

namespace railweave {

void bind_collectives(nb::module_& m) {
  nb::module_ sub = m.def_submodule("collectives", "Collectives, and how rails carry them");
  RAILWEAVE_ENUM(sub, DType, kFloat32, kInt32, kFloat16, kBFloat16, kFloat64, kInt8, kUInt8, kInt64);
  RAILWEAVE_ENUM(sub, ReduceOp, kSum, kMax, kMin, kAvg, kProd);
  RAILWEAVE_ENUM(sub, Collective, kAllReduce, kReduceScatter, kAllGather, kBroadcast);
  RAILWEAVE_ENUM(sub, Called, kAsCarried, kEmpty, kReduce, kEmptyReduce, kBarrier);
  // Every call looks up keys with these values, and Enum's own hash is a slow Python function.
  for (const char* name : {"DType", "ReduceOp", "Collective", "Called"})
    sub.attr(name).attr("__hash__") = nb::module_::import_("builtins").attr("object").attr("__hash__");
  sub.attr("MOST_HOST_SUM_BYTES") = kMostHostSumBytes;
  sub.def("item_size", &item_size, "dtype"_a, "Bytes of an element");
  RAILWEAVE_ENUM(sub, Method, kRecursiveDoubling, kBruck, kRing, kBinomial, kChain);
  sub.def(
      "choose_method",
      [](Collective collective, std::size_t bytes, int ranks, std::uint64_t rate_bps) {
        return choose_method(collective, bytes, ranks, {.rate_bps = rate_bps});
      },
      "collective"_a, "bytes"_a, "ranks"_a, "rate_bps"_a,
      "How TCP and RDMA rails carry a tensor of so many bytes; rate 0: unknown");
}

}  // namespace railweave
