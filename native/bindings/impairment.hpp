// SPDX-License-Identifier: Apache-2.0
// An impairment and its counts as dictionaries of Python.
#pragma once

#include <nanobind/nanobind.h>

#include "bindings/values.hpp"
#include "ports/impairment.hpp"

namespace railweave::ports {

inline Impairment to_impairment(const nanobind::dict& values) {
  return {.loss = nanobind::cast<double>(values["loss"]),
          .duplicate = nanobind::cast<double>(values["duplicate"]),
          .reorder = nanobind::cast<double>(values["reorder"]),
          .corrupt = nanobind::cast<double>(values["corrupt"]),
          .delay = nanobind::cast<Duration>(values["delay_ns"]),
          .rate_bps = nanobind::cast<std::uint64_t>(values["rate_bps"]),
          .seed = nanobind::cast<std::uint64_t>(values["seed"]),
          .queue_bytes = nanobind::cast<std::size_t>(values["queue_bytes"])};
}

inline nanobind::dict describe(const ImpairmentCounts& counts) {
  return RAILWEAVE_DICT(counts, packets, lost, duplicated, reordered, corrupted, overflowed);
}

}  // namespace railweave::ports
