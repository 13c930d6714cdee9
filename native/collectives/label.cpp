// SPDX-License-Identifier: Apache-2.0
#include "collectives/label.hpp"

#include <array>
#include <string_view>

namespace railweave {
namespace {

constexpr std::array<std::string_view, 4> kCollectives{"all_reduce", "reduce_scatter", "all_gather",
                                                       "broadcast"};
constexpr std::array<std::string_view, 8> kDTypes{"float32", "int32", "float16", "bfloat16",
                                                  "float64", "int8",  "uint8",   "int64"};
constexpr std::array<std::string_view, 5> kOps{"sum", "max", "min", "avg", "prod"};

template <typename Names, typename Enum>
std::string name(const Names& names, Enum value) {
  return std::string(names.at(static_cast<std::size_t>(value)));
}

}  // namespace

std::byte* store_label(std::byte* to, const MessageLabel& label) {
  const CallDescription& call = label.call;
  return store_fields(to, call.op_index, call.collective, call.dtype, call.op, call.called, call.root,
                      label.part, call.count, label.slice_count);
}

std::optional<MessageLabel> load_label(const std::byte* from) {
  MessageLabel label{};
  CallDescription& call = label.call;
  load_fields(from, call.op_index, call.collective, call.dtype, call.op, call.called, call.root, label.part,
              call.count, label.slice_count);
  const bool known = call.collective <= Collective::kBroadcast && call.dtype <= DType::kInt64 &&
                     call.op <= ReduceOp::kProd && call.called <= Called::kBarrier;
  if (!known) return std::nullopt;
  return label;
}

std::string describe(const CallDescription& call) {
  const std::string number = " #" + std::to_string(call.op_index);
  if (call.called == Called::kBarrier) return "barrier" + number;
  const std::string collective = is_reduce(call.called) ? "reduce" : name(kCollectives, call.collective);
  const std::uint64_t count = is_empty(call.called) ? 0 : call.count;
  const std::string what =
      collective + number + " of " + std::to_string(count) + " " + name(kDTypes, call.dtype);
  switch (call.collective) {
    case Collective::kAllReduce:
      return what + ", " + name(kOps, call.op) +
             (is_reduce(call.called) ? ", to rank " + std::to_string(call.root) : "");
    case Collective::kReduceScatter:
      return what + " per rank, " + name(kOps, call.op);
    case Collective::kAllGather:
      return what + " per rank";
    case Collective::kBroadcast:
      return what + " from rank " + std::to_string(call.root);
  }
  __builtin_unreachable();
}

std::string describe(const MessageLabel& label) {
  const std::string whole = describe(label.call);
  const bool stands_for_more = is_empty(label.call.called) || label.call.called == Called::kBarrier;
  if (label.slice_count == label.call.count || stands_for_more) return whole;
  return whole + ", " + std::to_string(label.slice_count) + " on this rail";
}

Failure mismatch(int own_rank, const MessageLabel& own, int rank, const MessageLabel& theirs) {
  return {.kind = FailureKind::kMismatch,
          .rank = rank,
          .message = "rank " + std::to_string(own_rank) + " calls " + describe(own) + "; rank " +
                     std::to_string(rank) + " calls " + describe(theirs) +
                     ": all ranks must make the same calls in the same order, with the same shares"};
}

}  // namespace railweave
