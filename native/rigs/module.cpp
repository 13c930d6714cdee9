// SPDX-License-Identifier: Apache-2.0
// railweave._rigs: single parts of the native core and simulated networks, for tests. Only the build in the
// source tree has this module.
#include <nanobind/nanobind.h>

#include "rigs/rig.hpp"

namespace nb = nanobind;

namespace railweave {

void bind_agent(nb::module_& m);
void bind_calls(nb::module_& m);
void bind_collectives(nb::module_& m);
void bind_composed(nb::module_& m);
void bind_ina(nb::module_& m);
void bind_loop(nb::module_& m);
void bind_rails(nb::module_& m);
void bind_roce(nb::module_& m);
void bind_secret(nb::module_& m);
void bind_spread(nb::module_& m);
void bind_sum_rings(nb::module_& m);
namespace ports {
void bind_ports(nb::module_& m);
}
namespace recovery {
void bind_recovery(nb::module_& m);
}

nb::module_ rig_submodule(nb::module_& rigs, const char* name, const char* doc) {
  nb::module_ made = rigs.def_submodule(name, doc);
  const nb::module_ product = nb::module_::import_("railweave._native");
  if (nb::hasattr(product, name))
    for (const auto& [key, value] : nb::cast<nb::dict>(product.attr(name).attr("__dict__")))
      if (!nb::cast<nb::str>(key).attr("startswith")("_").equal(nb::bool_(true))) made.attr(key) = value;
  return made;
}

}  // namespace railweave

NB_MODULE(_rigs, m) {
  m.doc() = "Parts of railweave's native core for tests";
  railweave::bind_collectives(m);
  railweave::bind_agent(m);
  railweave::bind_calls(m);
  railweave::bind_composed(m);
  railweave::bind_ina(m);
  railweave::bind_loop(m);
  railweave::bind_rails(m);
  railweave::recovery::bind_recovery(m);
  railweave::bind_roce(m);
  railweave::bind_secret(m);
  railweave::bind_spread(m);
  railweave::bind_sum_rings(m);
  railweave::ports::bind_ports(m);
}
