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

void store_label(std::byte* to, const MessageLabel& label) {
  store_be(to, label.call.op_index);
  to[4] = static_cast<std::byte>(label.call.collective);
  to[5] = static_cast<std::byte>(label.call.dtype);
  to[6] = static_cast<std::byte>(label.call.op);
  to[7] = std::byte{0};
  store_be(to + 8, label.call.root);
  store_be(to + 10, label.part);
  store_be(to + 12, label.call.count);
  store_be(to + 20, label.slice_count);
}

std::optional<MessageLabel> load_label(const std::byte* from) {
  const auto collective = load_be<std::uint8_t>(from + 4);
  const auto dtype = load_be<std::uint8_t>(from + 5);
  const auto op = load_be<std::uint8_t>(from + 6);
  if (collective >= kCollectives.size() || dtype >= kDTypes.size() || op >= kOps.size()) return std::nullopt;
  if (from[7] != std::byte{0}) return std::nullopt;
  return MessageLabel{.call = {.op_index = load_be<std::uint32_t>(from),
                               .collective = static_cast<Collective>(collective),
                               .dtype = static_cast<DType>(dtype),
                               .op = static_cast<ReduceOp>(op),
                               .root = load_be<std::uint16_t>(from + 8),
                               .count = load_be<std::uint64_t>(from + 12)},
                      .slice_count = load_be<std::uint64_t>(from + 20),
                      .part = load_be<std::uint16_t>(from + 10)};
}

std::string describe(const CallDescription& call) {
  const std::string what = name(kCollectives, call.collective) + " #" + std::to_string(call.op_index) +
                           " of " + std::to_string(call.count) + " " + name(kDTypes, call.dtype);
  switch (call.collective) {
    case Collective::kAllReduce:
      return what + ", " + name(kOps, call.op);
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
  if (label.slice_count == label.call.count) return whole;
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
