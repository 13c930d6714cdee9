// SPDX-License-Identifier: Apache-2.0
// railweave._native, the native module of the product: one file per submodule.
#include <nanobind/nanobind.h>

namespace railweave {
void bind_agent(nanobind::module_& m);
void bind_collectives(nanobind::module_& m);
void bind_roce(nanobind::module_& m);
void bind_ina(nanobind::module_& m);
}  // namespace railweave
namespace railweave::engine {
void bind_engine(nanobind::module_& m);
}
namespace railweave::load {
void bind_load(nanobind::module_& m);
}
namespace railweave::ports {
void bind_ports(nanobind::module_& m);
}

NB_MODULE(_native, m) {
  nanobind::set_leak_warnings(false);  // PyTorch keeps whole modules until the process ends
  m.doc() = "railweave's native core: protocol machines, event loop and P4 engine";
  railweave::bind_collectives(m);
  railweave::bind_agent(m);
  railweave::bind_ina(m);
  railweave::engine::bind_engine(m);
  railweave::bind_roce(m);
  railweave::load::bind_load(m);
  railweave::ports::bind_ports(m);
}
