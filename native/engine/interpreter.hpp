// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

namespace railweave::engine {

class Engine;
struct Pass;

/// Runs code of the engine's plan on a pass.
struct Interpreter {
  /// From `pc` to END. False: the pass jumped backwards too often and must be dropped.
  static bool run(Engine& engine, Pass& pass, std::uint32_t pc);
};

}  // namespace railweave::engine
