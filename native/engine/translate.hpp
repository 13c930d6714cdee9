// SPDX-License-Identifier: Apache-2.0
// Plans as C++: one function per stage, in which every instruction is a call of its function in ops.hpp with
// constant operands. So the interpreter and compiled code share the functions of instructions.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

#include "engine/machine.hpp"

namespace railweave::engine {

/// The source of a plan, which includes engine/compiled.hpp and defines `railweave_compiled`, a CompiledPlan.
/// Empty for a plan that is only interpreted.
std::string translate(const Plan& plan, std::uint64_t hash);

namespace detail {

/// A step of FNV-1a (RFC 9923), of a word.
constexpr std::uint64_t mix(std::uint64_t hash, std::uint64_t value) {
  return (hash ^ value) * 0x100000001b3;
}

constexpr std::uint64_t hash_of_ops() {
  std::uint64_t hash = 0xcbf29ce484222325;
  for (const OpInfo& op : kOps) {
    for (const char* at = op.name; *at; ++at) hash = mix(hash, static_cast<std::uint64_t>(*at));
    for (const char* at = op.signature; *at; ++at) hash = mix(hash, static_cast<std::uint64_t>(*at));
  }
  return hash;
}

template <typename... Shared>
constexpr std::uint64_t hash_of_layouts() {
  std::uint64_t hash = hash_of_ops();
  ((hash = mix(hash, sizeof(Shared))), ...);
  return hash;
}

}  // namespace detail

/// Hash of the instructions and layouts that compiled code shares with the module that runs it.
inline constexpr std::uint64_t kAbi =
    detail::hash_of_layouts<Machine, Packet, Plan, HeaderPlan, TablePlan, CalculationPlan, InputPlan, State,
                            Table, Entry, Match, TupleSpace, Cells, Replication, Messages, Notices,
                            CompiledPlan>();

}  // namespace railweave::engine
