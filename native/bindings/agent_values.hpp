// SPDX-License-Identifier: Apache-2.0
// The values that an agent takes and reports, for Python.
#pragma once

#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <cstdint>
#include <vector>

#include "agent/agent.hpp"
#include "bindings/values.hpp"
#include "rails/rdma_transport.hpp"

RAILWEAVE_TUPLE(railweave::Part, rail, offset, count)
RAILWEAVE_TUPLE(railweave::SocketAddress, address, port)
RAILWEAVE_TUPLE(railweave::RdmaMember, address, mac, queue_pairs)
RAILWEAVE_TUPLE(railweave::SumNumbers, out, into, alias)

namespace railweave {

/// Of each slice its op index, rail, start and end in ns, and bytes.
using SliceRows = nanobind::ndarray<nanobind::numpy, std::int64_t, nanobind::shape<-1, 5>, nanobind::c_contig,
                                    nanobind::device::cpu>;
SliceRows slice_rows(const std::vector<SliceRecord>& records);

void bind_agent_values(nanobind::module_& sub);

}  // namespace railweave
