// SPDX-License-Identifier: Apache-2.0
// The values that an agent takes and reports, for Python.
#pragma once

#include <nanobind/nanobind.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include "agent/agent.hpp"
#include "bindings/values.hpp"
#include "rails/rdma_transport.hpp"

RAILWEAVE_TUPLE(railweave::Part, rail, offset, count)
RAILWEAVE_TUPLE(railweave::SocketAddress, address, port)
RAILWEAVE_TUPLE(railweave::RdmaMember, address, mac, queue_pairs)
RAILWEAVE_TUPLE(railweave::SumNumbers, out, into, alias)

namespace railweave {

void bind_agent_values(nanobind::module_& sub);

}  // namespace railweave
