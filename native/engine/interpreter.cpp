// SPDX-License-Identifier: Apache-2.0
#include "engine/ops.hpp"

namespace railweave::engine {

// A single function keeps the values that every instruction needs in registers of the processor, or at least
// in the first-level cache. Instructions of more than a few lines are functions that it calls.
bool Machine::interpret(Packet& packet, std::uint32_t pc, std::uint32_t until,
                        const std::uint64_t* parameters) {
  const Plan& plan = plan_;
  const Instruction* const code = plan_.code.data();
  const Instruction* back = code;  // where RET goes; actions do not nest
  const Instruction* const stop = until == kNone ? nullptr : code + until;
  Run<Plan> run{*this, plan, packet, registers_.data(), key_.data()};
  run.parameters = parameters;

// `in` is left one short of the target, for NEXT to step over.
#define GO(where)                                   \
  do {                                              \
    const Instruction* const to = (where);          \
    if (to <= in && --run.jumps == 0) return false; \
    in = to - 1;                                    \
  } while (false)
#define JUMP(target) GO(code + (target))
// Threaded code: every operation jumps to the next one itself, which saves the way back to a common loop.
#define NEXT                                         \
  do {                                               \
    ++in;                                            \
    goto* kLabels[static_cast<std::size_t>(in->op)]; \
  } while (false)
#define STEP(name)                                                           \
  if (jumps([&]() __attribute__((always_inline)) { return run.name(*in); })) \
  JUMP(target(Op::name, *in, plan.parsed))

  static const void* const kLabels[] = {
#define X(name, signature) &&op_##name,
      RAILWEAVE_ENGINE_OPS(X)
#undef X
  };
  const Instruction* in = code + pc - 1;

  NEXT;
op_END:
  return true;
op_RET:
  if (packet.exited) return true;
  GO(back);
  NEXT;
op_JMP:
  JUMP(in->a);
  NEXT;
op_CALL:
  back = in + 1;
  JUMP(in->a);
  NEXT;
op_TABLE:
  {
    const auto [action, hit] = run.look_up(*in);
    const TablePlan& shape = plan.tables[in->a];
    if (action == kNone) [[unlikely]] {
      JUMP(hit && shape.hit != kNone ? shape.hit : shape.miss);
      NEXT;
    }
    back = code + (shape.hit == kNone ? shape.next[action] : hit ? shape.hit : shape.miss);
    JUMP(shape.actions[action]);
    NEXT;
  }
op_COLD:
  run.settle();
  NEXT;
op_JOIN:
  if (in == stop) return true;
  NEXT;
op_ASSERT:
  if (!run.holds(*in)) return false;
  NEXT;
#define X(name, signature) \
  op_##name : STEP(name);  \
  NEXT;
  RAILWEAVE_ENGINE_STEPS(X)
#undef X
#undef STEP
#undef NEXT
#undef JUMP
#undef GO
}

}  // namespace railweave::engine
