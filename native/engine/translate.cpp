// SPDX-License-Identifier: Apache-2.0
#include "engine/translate.hpp"

#include <array>
#include <set>
#include <sstream>
#include <tuple>
#include <type_traits>
#include <utility>
#include <vector>

#include "engine/ops.hpp"

namespace railweave::engine {
namespace {

/// Which functions of instructions tell whether they jump.
constexpr bool kJumps[] = {
#define X(name, signature) false,
    RAILWEAVE_ENGINE_CONTROL(X)
#undef X
#define X(name, signature) \
  std::is_same_v<bool, decltype(std::declval<Run<Plan>&>().name(std::declval<const Instruction&>()))>,
        RAILWEAVE_ENGINE_STEPS(X)
#undef X
};

/// The functions of words that vector instructions with two operands are.
constexpr auto kVectorFunctions = [] {
  std::array<const char*, static_cast<std::size_t>(Op::kCount)> names{};
#define X(op, name) names[static_cast<std::size_t>(Op::op)] = #name;
  RAILWEAVE_VECTOR_OPS(X)
#undef X
  return names;
}();

/// The values of a struct as an initialiser.
template <typename T>
std::string fields_of(T value) {
  std::ostringstream out;
  std::apply([&](const auto&... field) { ((out << (out.tellp() ? ", " : "{") << field), ...); },
             value.fields());
  return out.str() + "}";
}

template <typename... T>
std::string text(const T&... parts) {
  std::ostringstream out;
  (out << ... << parts);
  return out.str();
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
                  fields_of(table.meter_result), '}');
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
      if (const std::uint32_t end = end_of_vectors(pc, targets); end > pc + 1) {
        vectors(pc, end);
        expected = end;
      } else {
        instruction(pc);
        expected = pc + 1;
      }
      if (falls_through_ && !code.contains(expected)) translatable_ = false;
    }
    out_ << "}\n";
  }

  static bool is(const Instruction& in, Op first, Op last) { return in.op >= first && in.op <= last; }
  static bool loads(const Instruction& in) {
    return in.op == Op::V_LD_BE || in.op == Op::V_LD_N || in.op == Op::V_LD_REG;
  }
  static bool stores(const Instruction& in) {
    return in.op == Op::V_ST_BE || in.op == Op::V_ST_N || in.op == Op::V_ST_REG;
  }
  std::uint32_t length(const Instruction& in) const {
    return in.op == Op::V_LD_REG || in.op == Op::V_ST_REG ? plan_.slices[in.a].length : in.c;
  }

  /// Whether word i of the one can be another word than i of the other.
  bool cross(const Instruction& one, const Instruction& other) const {
    const auto range = [this](const Instruction& in) {
      const bool cells = in.op == Op::V_LD_REG || in.op == Op::V_ST_REG;
      const std::uint32_t begin = cells ? 4 * plan_.slices[in.a].word : in.a;
      return std::tuple(cells ? plan_.slices[in.a].bank : kNone, begin, begin + 4 * length(in));
    };
    const auto [memory, begin, end] = range(one);
    const auto [other_memory, other_begin, other_end] = range(other);
    return memory == other_memory && begin != other_begin && begin < other_end && other_begin < end;
  }

  /// The end of the vector instructions that begin at `pc` and may be one loop over words: all of the same
  /// length, loads before stores, and no vectors of before or for later.
  std::uint32_t end_of_vectors(std::uint32_t pc, const std::set<std::uint32_t>& targets) const {
    std::set<std::uint32_t> defined;
    std::vector<const Instruction*> memory;
    bool stored = false;
    std::uint32_t end = pc;
    for (; end < plan_.code.size(); ++end) {
      const Instruction& in = plan_.code[end];
      if (!is(in, Op::V_LD_BE, Op::V_SELECT) || (end > pc && targets.contains(end))) break;
      if (length(in) != length(plan_.code[pc])) return pc;
      const auto missing = [&](std::uint32_t vector) { return !defined.contains(vector); };
      const bool binary = kVectorFunctions[static_cast<std::size_t>(in.op)] != nullptr;
      if (binary && (missing(in.a) || missing(in.b))) return pc;
      if (in.op == Op::V_SELECT && (missing(in.d) || missing(in.a) || missing(in.b))) return pc;
      if ((in.op == Op::V_MOV || is(in, Op::V_NOT, Op::V_SAR)) && missing(in.a)) return pc;
      if (stores(in) && missing(in.d)) return pc;
      if (loads(in) && stored) return pc;
      if (loads(in) || stores(in)) {
        for (const Instruction* other : memory) {
          if ((stores(in) || stores(*other)) && cross(in, *other)) return pc;
        }
        memory.push_back(&in);
      }
      stored |= stores(in);
      if (!stores(in)) defined.insert(in.d);
    }
    for (std::uint32_t at = end; at < plan_.code.size() && !ends_vectors(plan_.code[at].op); ++at) {
      if (is(plan_.code[at], Op::V_LD_BE, Op::V_LAST)) return pc;
    }
    return end;
  }
  static bool ends_vectors(Op op) {
    return op == Op::JMP || op == Op::JOIN || op == Op::RET || op == Op::END || op == Op::COLD;
  }

  /// Vector instructions as one loop over words.
  void vectors(std::uint32_t begin, std::uint32_t end) {
    falls_through_ = true;
    std::ostringstream loop, behind;
    out_ << "  {\n";
    for (std::uint32_t pc = begin; pc < end; ++pc) {
      const Instruction& in = plan_.code[pc];
      const std::string number = text(pc), to = text("v", in.d), a = text("v", in.a), b = text("v", in.b),
                        count = text(in.b & 31);
      const std::string operands = operands_of(in);
      const auto bytes = [&](const char* type, const std::string& where) {
        out_ << "    " << type << " const p" << number << " = " << where << ";\n";
      };
      switch (in.op) {
        case Op::V_LD_BE:
        case Op::V_LD_N:
          bytes("const std::byte*",
                in.op == Op::V_LD_BE ? text("run.words(", in.a, ")") : text("run.phv + ", in.a));
          loop << to << " = load_" << (in.op == Op::V_LD_BE ? "be" : "le") << "<std::uint32_t>(p" << number
               << " + 4 * i); ";
          break;
        case Op::V_ST_BE:
        case Op::V_ST_N:
          bytes("std::byte*", in.op == Op::V_ST_BE ? text("run.room(", in.a, ")") : text("run.phv + ", in.a));
          loop << "store_" << (in.op == Op::V_ST_BE ? "be" : "le") << "<std::uint32_t>(p" << number
               << " + 4 * i, " << to << "); ";
          break;
        case Op::V_LD_REG:
          out_ << "    const std::uint32_t* const p" << number << " = run.cells(" << operands
               << ");\n    if (p" << number << " == nullptr) " << go(pc, in.c);
          loop << to << " = p" << number << "[i]; ";
          break;
        case Op::V_ST_REG:  // where there is no such row, to a vector that nobody reads
          out_ << "    std::uint32_t* const c" << number << " = run.cells(" << operands
               << ");\n    std::uint32_t* const p" << number << " = c" << number << " ? c" << number
               << " : run.vector(0);\n";
          loop << "p" << number << "[i] = " << to << "; ";
          behind << "    if (c" << number << ") run.wrote(" << operands << ");\n";
          break;
        case Op::V_BCAST:
          out_ << "    const auto p" << number << " = static_cast<std::uint32_t>(run.r[" << in.a << "]);\n";
          loop << to << " = p" << number << "; ";
          break;
        case Op::V_MOV:
          loop << to << " = " << a << "; ";
          break;
        case Op::V_NOT:
          loop << to << " = ~" << a << "; ";
          break;
        case Op::V_SHL:
          loop << to << " = " << a << " << " << count << "; ";
          break;
        case Op::V_SHR:
          loop << to << " = " << a << " >> " << count << "; ";
          break;
        case Op::V_SAR:
          loop << to << " = vectors::word::shift_right_signed(" << a << ", " << count << "); ";
          break;
        case Op::V_SELECT:
          loop << to << " = vectors::word::select(" << to << ", " << a << ", " << b << "); ";
          break;
        default:
          loop << to << " = vectors::word::" << kVectorFunctions[static_cast<std::size_t>(in.op)] << "(" << a
               << ", " << b << "); ";
      }
    }
    std::set<std::uint32_t> used;
    for (std::uint32_t pc = begin; pc < end; ++pc) used.insert(plan_.code[pc].d);
    out_ << "    _Pragma(\"GCC ivdep\") for (std::size_t i = 0; i < " << length(plan_.code[begin])
         << "; ++i) {\n      std::uint32_t ";
    for (const std::uint32_t vector : used) out_ << (vector == *used.begin() ? "v" : ", v") << vector;
    out_ << ";\n      " << loop.str() << "\n    }\n" << behind.str() << "  }\n";
  }

  static std::string operands_of(const Instruction& in) {
    return text("{Op::", kOps[static_cast<std::size_t>(in.op)].name, ", ", in.d, ", ", in.a, "u, ", in.b,
                "u, ", in.c, "u}");
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
