// SPDX-License-Identifier: Apache-2.0
// The label that every message of a transport carries, so that ranks that call different things find out and
// say so.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>

#include "core/bytes.hpp"
#include "core/collective.hpp"
#include "rails/rail.hpp"

namespace railweave {

/// The call that a message belongs to, and how many of its elements this rail carries.
struct MessageLabel {
  CallDescription call;
  std::uint64_t slice_count;

  bool operator==(const MessageLabel&) const = default;
};

inline constexpr std::size_t kLabelSize = 24;

/// Network order: op index 32, collective 8, dtype 8, op 8, zero 8, count 64, slice count 64.
void store_label(std::byte* to, const MessageLabel& label);
/// Nothing if a field has no meaning: a hostile or foreign sender.
std::optional<MessageLabel> load_label(const std::byte* from);

/// "all_reduce #7 of 1024 float32, sum"
std::string describe(const CallDescription& call);
/// `describe` and, where it differs from the whole, the slice: "all_reduce #7 of 1024 float32, sum, 512 on
/// this rail"
std::string describe(const MessageLabel& label);

/// The failure of rank `own_rank` that finds that `rank` calls something else.
Failure mismatch(int own_rank, const MessageLabel& own, int rank, const MessageLabel& theirs);

}  // namespace railweave
