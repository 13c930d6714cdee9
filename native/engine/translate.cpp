// SPDX-License-Identifier: Apache-2.0
#include "engine/translate.hpp"

#include <set>
#include <sstream>
#include <type_traits>
#include <utility>
#include <vector>

#include "engine/ops.hpp"
#include "engine/text.hpp"
#include "engine/vector_loop.hpp"

namespace railweave::engine {
namespace {

/// Whether the function of an instruction returns whether it jumps.
constexpr bool kJumps[] = {
#define X(name, signature) false,
    RAILWEAVE_ENGINE_CONTROL(X)
#undef X
#define X(name, signature) \
  std::is_same_v<bool, decltype(std::declval<Run<Plan>&>().name(std::declval<const Instruction&>()))>,
        RAILWEAVE_ENGINE_STEPS(X)
#undef X
};

/// The values of a struct as an initialiser.
template <typename T>
std::string fields_of(T value) {
  std::ostringstream out;
  std::apply([&](const auto&... field) { ((out << (out.tellp() ? ", " : "{") << field), ...); },
             value.fields());
  return out.str() + "}";
}

class Translator {
 public:
  Translator(const Plan& plan, std::uint64_t hash) : plan_(plan), hash_(hash) {}

  std::string source() {
    for (const Instruction& in : plan_.code) {
      if (in.op == Op::CALL) actions_.insert(in.a);
    }
    for (const TablePlan& table : plan_.tables) actions_.insert(table.actions.begin(), table.actions.end());
    constants();
    for (const std::uint32_t action : actions_) function(action, true);
    for (const auto stage : {Stage::kParser, Stage::kIngress, Stage::kEgress, Stage::kDeparser}) {
      function(plan_.entry(stage), false, static_cast<std::size_t>(stage));
    }
    out_ << "}  // namespace\n\nRAILWEAVE_EXPORT const CompiledPlan railweave_compiled = {kAbi, " << hash_
         << "u, {stage_0, stage_1, stage_2, stage_3}};\n"
         << "}  // namespace railweave::engine\n";
    return translatable_ ? out_.str() : "";
  }

 private:
  void constants() {
    out_ << "#include \"engine/compiled.hpp\"\n\nnamespace railweave::engine {\nnamespace {\n\n";
    for (std::size_t i = 0; i < plan_.calculations.size(); ++i) {
      const auto& inputs = plan_.calculations[i].inputs;
      out_ << "constexpr std::array<InputPlan, " << inputs.size() << "> inputs_" << i << " = {{";
      for (const InputPlan& input : inputs) {
        out_ << "{static_cast<InputPlan::Kind>(" << input.kind << "), " << input.valid << "u, "
             << input.offset << "u, " << input.width << "u}, ";
      }
      out_ << "}};\n";
    }
    out_ << "struct Constants {\n"
         << "  static constexpr std::uint32_t limbs = " << plan_.limbs << ", key_words = " << plan_.key_words
         << ", vector_length = " << plan_.vector_length << ", registers = " << plan_.registers
         << ", large = " << plan_.large << "u, large_at = " << plan_.large_at << 'u' << ";\n";
    array("HeaderPlan", "headers", plan_.headers, [](const HeaderPlan& header) {
      std::string fields = fields_of(header);
      fields.back() = ',';
      return text(fields, ' ', header.room, '}');
    });
    array("RegisterPlan", "arrays", plan_.arrays, fields_of<RegisterPlan>);
    array("BankPlan", "banks", plan_.banks, fields_of<BankPlan>);
    array("SlicePlan", "slices", plan_.slices, fields_of<SlicePlan>);
    array("TableShape", "tables", plan_.tables, [](const TablePlan& table) {
      return text('{', table.words, ", ", table.meter, "u, ", table.timeouts, ", ",
                  fields_of(table.meter_result), ", ", fields_of(table.meter_bits), '}');
    });
    std::size_t number = 0;
    array("Calculation", "calculations", plan_.calculations, [&](const CalculationPlan& calculation) {
      return text('{', calculation.algorithm, ", inputs_", number++, '}');
    });
    out_ << "};\nconstexpr Constants kProgram;\n\n";
  }

  template <typename Values, typename Text>
  void array(const char* type, const char* name, const Values& values, const Text& text) {
    if (values.empty()) {  // no instruction has an index of it
      out_ << "  static constexpr const " << type << "* " << name << " = nullptr;\n";
      return;
    }
    out_ << "  static constexpr " << type << ' ' << name << "[] = {";
    for (const auto& value : values) out_ << text(value) << ", ";
    out_ << "};\n";
  }

  /// The code that can be reached from `entry` without a return, and where jumps in it lead.
  std::pair<std::set<std::uint32_t>, std::set<std::uint32_t>> reach(std::uint32_t entry) const {
    std::set<std::uint32_t> code, targets{entry};
    std::vector<std::uint32_t> open{entry};
    while (!open.empty()) {
      const std::uint32_t pc = open.back();
      open.pop_back();
      if (!code.insert(pc).second) continue;
      const Instruction& in = plan_.code[pc];
      const auto leads_to = [&](std::uint32_t to) {
        targets.insert(to);
        open.push_back(to);
      };
      if (in.op == Op::END || in.op == Op::RET) continue;
      if (in.op == Op::COLD) {
        leads_to(in.a);
        continue;
      }
      if (in.op == Op::TABLE) {
        const TablePlan& table = plan_.tables[in.a];
        if (table.hit != kNone) leads_to(table.hit);
        leads_to(table.miss);
        for (const std::uint32_t next : table.next) {
          if (table.hit == kNone) leads_to(next);
        }
        continue;
      }
      if (in.op == Op::JMP || jumps(in)) leads_to(target(in.op, in, plan_.parsed));
      if (in.op != Op::JMP) open.push_back(pc + 1);
    }
    return {code, targets};
  }

  static bool jumps(const Instruction& in) { return kJumps[static_cast<std::size_t>(in.op)]; }

  void function(std::uint32_t entry, bool action, std::size_t stage = 0) {
    in_action_ = action;
    const auto [code, targets] = reach(entry);
    if (action) {
      out_ << "[[gnu::always_inline]] inline End action_" << entry << "(Run<Constants>& run) {\n";
    } else {
      out_ << "bool stage_" << stage << "(Machine& machine, Packet& packet) {\n  std::uint64_t key["
           << plan_.key_words + plan_.limbs + 1 << "];\n  std::uint64_t r[" << plan_.registers + 1 << "] = {";
      for (const std::uint64_t constant : plan_.constants) out_ << constant << "u, ";
      out_ << "};\n  Run<Constants> run{machine, kProgram, packet, r, key};\n";
    }
    if (*code.begin() != entry) out_ << "  goto L" << entry << ";\n";
    std::uint32_t expected = *code.begin();
    for (const std::uint32_t pc : code) {
      if (pc < expected) continue;  // in a loop of vector instructions
      if (pc != expected && falls_through_) out_ << "  goto L" << expected << ";\n";
      if (targets.contains(pc)) out_ << "L" << pc << ":\n";
      if (const std::uint32_t end = end_of_vector_loop(plan_, pc, targets); end > pc + 1) {
        out_ << vector_loop(plan_, pc, end,
                            [this](std::uint32_t from, std::uint32_t to) { return go(from, to); });
        falls_through_ = true;
        expected = end;
      } else {
        instruction(pc);
        expected = pc + 1;
      }
      if (falls_through_ && !code.contains(expected)) translatable_ = false;
    }
    out_ << "}\n";
  }

  const char* fail() const { return in_action_ ? "return End::kFail" : "return false"; }

  /// Goes to `to`, and counts if that is backwards.
  std::string go(std::uint32_t from, std::uint32_t to) const {
    return text("{ ", back(from, to), "goto L", to, "; }\n");
  }
  std::string back(std::uint32_t from, std::uint32_t to) const {
    return to <= from ? text("if (--run.jumps == 0) ", fail(), "; ") : "";
  }

  void instruction(std::uint32_t pc) {
    const Instruction& in = plan_.code[pc];
    falls_through_ = true;
    out_ << "  ";
    switch (in.op) {
      case Op::END:
        falls_through_ = false;
        out_ << (in_action_ ? "return End::kExit;\n" : "return true;\n");
        return;
      case Op::RET:
        falls_through_ = false;
        if (!in_action_) translatable_ = false;
        out_ << "return run.packet.exited ? End::kExit : End::kReturn;\n";
        return;
      case Op::JMP:
        falls_through_ = false;
        out_ << go(pc, in.a);
        return;
      case Op::CALL:
        if (in_action_) translatable_ = false;
        call(pc, in.a, pc + 1);
        out_ << '\n';
        return;
      case Op::TABLE:
        table(pc, in);
        return;
      case Op::COLD:
        falls_through_ = false;
        if (plan_.code[in.a].op != Op::JOIN) translatable_ = false;
        out_ << "if (!run.interpret(" << pc + 1 << ", " << in.a << ")) " << fail() << ";\n  goto L" << in.a
             << ";\n";
        return;
      case Op::JOIN:
        out_ << ";\n";
        return;
      case Op::ASSERT:
        out_ << "if (!run.holds(" << operands_of(in) << ")) " << fail() << ";\n";
        return;
      default:
        break;
    }
    const std::string call =
        text("run.", kOps[static_cast<std::size_t>(in.op)].name, "(", operands_of(in), ")");
    out_ << (jumps(in) ? text("if (", call, ") ", go(pc, target(in.op, in, plan_.parsed)))
                       : text(call, ";\n"));
  }

  /// An action, which goes on at `next` when it returns.
  void call(std::uint32_t from, std::uint32_t action, std::uint32_t next) {
    for (const std::uint32_t pc : reach(action).first) {
      if (next <= pc) translatable_ = false;  // a way back that would count: the lowering puts actions first
    }
    out_ << back(from, action) << "CALL(action_" << action << ")";
  }

  void table(std::uint32_t pc, const Instruction& in) {
    const TablePlan& table = plan_.tables[in.a];
    falls_through_ = false;
    if (in_action_) translatable_ = false;
    out_ << "{ const auto found = run.look_up(" << operands_of(in) << ");\n  switch (found.action) {\n";
    for (std::size_t i = 0; i < table.actions.size(); ++i) {
      out_ << "    case " << i << ": ";
      if (table.hit == kNone) {
        call(pc, table.actions[i], table.next[i]);
        out_ << " goto L" << table.next[i] << ";\n";
      } else {
        call(pc, table.actions[i], std::min(table.hit, table.miss));
        out_ << " if (found.hit) goto L" << table.hit << "; else goto L" << table.miss << ";\n";
      }
    }
    out_ << "    default: ";
    if (table.hit != kNone) out_ << "if (found.hit) " << go(pc, table.hit) << "    ";
    out_ << go(pc, table.miss) << "  } }\n";
  }

  const Plan& plan_;
  std::uint64_t hash_;
  std::ostringstream out_;
  std::set<std::uint32_t> actions_;
  bool in_action_ = false;
  bool falls_through_ = false;  // whether the instruction behind the last one is run next
  bool translatable_ = true;
};

}  // namespace

std::string translate(const Plan& plan, std::uint64_t hash) { return Translator(plan, hash).source(); }

}  // namespace railweave::engine
