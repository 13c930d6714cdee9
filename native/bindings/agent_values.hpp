// SPDX-License-Identifier: Apache-2.0
// The values that an agent takes and tells, for Python.
#pragma once

#include <nanobind/nanobind.h>

namespace railweave {

void bind_agent_values(nanobind::module_& sub);

}  // namespace railweave
