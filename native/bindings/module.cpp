// SPDX-License-Identifier: Apache-2.0
// The one native module. Each part binds itself in a file of its own and is listed here.
#include <nanobind/nanobind.h>

namespace railweave {
void bind_agent(nanobind::module_& m);
void bind_calls(nanobind::module_& m);
void bind_collectives(nanobind::module_& m);
void bind_composed(nanobind::module_& m);
void bind_loop(nanobind::module_& m);
void bind_rails(nanobind::module_& m);
void bind_roce(nanobind::module_& m);
void bind_secret(nanobind::module_& m);
void bind_spread(nanobind::module_& m);
void bind_sum_rings(nanobind::module_& m);
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
namespace railweave::recovery {
void bind_recovery(nanobind::module_& m);
}

NB_MODULE(_native, m) {
  nanobind::set_leak_warnings(false);  // PyTorch keeps whole modules until a process ends
  m.doc() = "railweave's native core: protocol machines, event loop and P4 engine";
  railweave::bind_collectives(m);
  railweave::bind_composed(m);
  railweave::bind_agent(m);
  railweave::bind_calls(m);
  railweave::bind_loop(m);
  railweave::bind_rails(m);
  railweave::bind_ina(m);
  railweave::bind_spread(m);
  railweave::bind_sum_rings(m);
  railweave::engine::bind_engine(m);
  railweave::bind_roce(m);
  railweave::bind_secret(m);
  railweave::load::bind_load(m);
  railweave::ports::bind_ports(m);
  railweave::recovery::bind_recovery(m);
}
