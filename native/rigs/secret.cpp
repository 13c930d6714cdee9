// SPDX-License-Identifier: Apache-2.0
// railweave._rigs.secret: the keys and codes of a job, for tests that take the place of a rank.
#include "core/secret.hpp"

#include <nanobind/nanobind.h>
#include <nanobind/stl/string_view.h>

#include "bindings/values.hpp"
#include "rigs/rig.hpp"

namespace nb = nanobind;
using namespace nb::literals;

namespace railweave {

void bind_secret(nb::module_& m) {
  nb::module_ sub = rig_submodule(m, "secret", "Keys and message authentication codes of a job");
  sub.def(
      "derive_key",
      [](const nb::bytes& secret, std::string_view purpose, std::uint64_t part) {
        return to_python(derive_key(secret_of(secret), purpose, part));
      },
      "secret"_a, "purpose"_a, "part"_a = 0);
  sub.def(
      "authenticate",
      [](const nb::bytes& key, const nb::bytes& message) {
        return to_python(authenticate(key_from(key), view(message)));
      },
      "key"_a, "message"_a);
  sub.def(
      "authenticate_named",
      [](const nb::bytes& key, const nb::bytes& name, const nb::bytes& message) {
        return to_python(authenticate_named(key_from(key), view(name), view(message)));
      },
      "key"_a, "name"_a, "message"_a);
}

}  // namespace railweave
