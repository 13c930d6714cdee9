// SPDX-License-Identifier: Apache-2.0
// The label that every message of a transport carries. It shows ranks that they make different calls.
#pragma once

#include <compare>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>

#include "core/bytes.hpp"
#include "core/collective.hpp"
#include "core/failure.hpp"
#include "core/slice.hpp"

namespace railweave {

/// The slice that a message belongs to. A rail may carry several slices of one call, one after the other.
struct MessageLabel {
  CallDescription call;
  std::uint64_t slice_count;  // elements of the slice
  std::uint16_t part = 0;     // which of the call's slices on this rail, from 0

  bool operator==(const MessageLabel&) const = default;
};

inline constexpr std::size_t kLabelSize = 28;

/// Identifies a label's slice. Ranks whose labels have equal keys must agree in all other fields.
struct SliceKey {
  std::uint32_t op_index;
  std::uint16_t part;

  auto operator<=>(const SliceKey&) const = default;
};

inline MessageLabel label_of(const Slice& slice) {
  return {.call = slice.call, .slice_count = slice.count, .part = slice.part};
}
inline SliceKey key_of(const MessageLabel& label) { return {label.call.op_index, label.part}; }

/// Network order, sizes in bits: op index 32, collective 8, dtype 8, op 8, called 8, root 16, part 16,
/// count 64, slice count 64. Returns the end.
std::byte* store_label(std::byte* to, const MessageLabel& label);
/// Returns nothing if a field has no meaning, as from a hostile or foreign sender.
std::optional<MessageLabel> load_label(const std::byte* from);

/// "all_reduce #7 of 1024 float32, sum", "broadcast #8 of 1024 float32 from rank 2", "all_gather #9 of 1024
/// float32 per rank", "reduce #10 of 1024 float32, sum, to rank 2", "barrier #11"
std::string describe(const CallDescription& call);
/// Describes the call, and also the slice if that is smaller: "all_reduce #7 of 1024 float32, sum, 512 on
/// this rail"
std::string describe(const MessageLabel& label);

/// The failure that rank `own_rank` reports when `rank` makes another call.
Failure mismatch(int own_rank, const MessageLabel& own, int rank, const MessageLabel& theirs);

}  // namespace railweave
