// SPDX-License-Identifier: Apache-2.0
#include "engine/vector_loop.hpp"

#include <array>
#include <sstream>
#include <tuple>
#include <vector>

#include "engine/text.hpp"
#include "engine/vectors.hpp"

namespace railweave::engine {
namespace {

/// The functions of words that vector instructions with two operands are.
constexpr auto kVectorFunctions = [] {
  std::array<const char*, static_cast<std::size_t>(Op::kCount)> names{};
#define X(op, name) names[static_cast<std::size_t>(Op::op)] = #name;
  RAILWEAVE_VECTOR_OPS(X)
#undef X
  return names;
}();

bool is(const Instruction& in, Op first, Op last) { return in.op >= first && in.op <= last; }
bool loads(const Instruction& in) {
  return in.op == Op::V_LD_BE || in.op == Op::V_LD_N || in.op == Op::V_LD_REG;
}
bool stores(const Instruction& in) {
  return in.op == Op::V_ST_BE || in.op == Op::V_ST_N || in.op == Op::V_ST_REG;
}
std::uint32_t length(const Plan& plan, const Instruction& in) {
  return in.op == Op::V_LD_REG || in.op == Op::V_ST_REG ? plan.slices[in.a].length : in.c;
}

/// Whether word i of the one can be another word than i of the other.
bool cross(const Plan& plan, const Instruction& one, const Instruction& other) {
  const auto range = [&plan](const Instruction& in) {
    const bool cells = in.op == Op::V_LD_REG || in.op == Op::V_ST_REG;
    const std::uint32_t begin = cells ? 4 * plan.slices[in.a].word : in.a;
    const std::uint32_t bytes = cells ? plan.slices[in.a].bytes : in.b;
    return std::tuple(cells ? plan.slices[in.a].bank : kNone, begin, bytes,
                      begin + bytes * vectors::count(length(plan, in)));
  };
  const auto [memory, begin, bytes, end] = range(one);
  const auto [other_memory, other_begin, other_bytes, other_end] = range(other);
  const bool same = begin == other_begin && bytes == other_bytes;
  return memory == other_memory && !same && begin < other_end && other_begin < end;
}

bool ends_vectors(Op op) {
  return op == Op::JMP || op == Op::JOIN || op == Op::RET || op == Op::END || op == Op::COLD;
}

}  // namespace

std::uint32_t end_of_vector_loop(const Plan& plan, std::uint32_t pc, const std::set<std::uint32_t>& targets) {
  std::set<std::uint32_t> defined;
  std::vector<const Instruction*> memory;
  bool stored = false;
  std::uint32_t end = pc;
  for (; end < plan.code.size(); ++end) {
    const Instruction& in = plan.code[end];
    if (!is(in, Op::V_LD_BE, Op::V_SELECT) || (end > pc && targets.contains(end))) break;
    if (length(plan, in) != length(plan, plan.code[pc])) return pc;
    const auto missing = [&](std::uint32_t vector) { return !defined.contains(vector); };
    const bool binary = kVectorFunctions[static_cast<std::size_t>(in.op)] != nullptr;
    if (binary && (missing(in.a) || missing(in.b))) return pc;
    if (in.op == Op::V_SELECT && (missing(in.d) || missing(in.a) || missing(in.b))) return pc;
    if ((in.op == Op::V_MOV || is(in, Op::V_NOT, Op::V_SAR)) && missing(in.a)) return pc;
    if (stores(in) && missing(in.d)) return pc;
    if (loads(in) && stored) return pc;
    if (loads(in) || stores(in)) {
      for (const Instruction* other : memory) {
        if ((stores(in) || stores(*other)) && cross(plan, in, *other)) return pc;
      }
      memory.push_back(&in);
    }
    stored |= stores(in);
    if (!stores(in)) defined.insert(in.d);
  }
  for (std::uint32_t at = end; at < plan.code.size() && !ends_vectors(plan.code[at].op); ++at) {
    if (is(plan.code[at], Op::V_LD_BE, Op::V_SELECT)) return pc;
  }
  return end;
}

std::string vector_loop(const Plan& plan, std::uint32_t begin, std::uint32_t end,
                        const std::function<std::string(std::uint32_t from, std::uint32_t to)>& go) {
  const std::uint32_t words = length(plan, plan.code[begin]);
  const char* const word = vectors::has_long_words(words) ? "std::uint64_t" : "std::uint32_t";
  const unsigned word_bits = vectors::has_long_words(words) ? 64 : 32;
  std::ostringstream out, loop;
  out << "  {\n";
  for (std::uint32_t pc = begin; pc < end; ++pc) {
    const Instruction& in = plan.code[pc];
    const std::string number = text(pc), to = text("v", in.d), a = text("v", in.a), b = text("v", in.b),
                      count = text(in.b & (word_bits - 1));
    const std::string operands = operands_of(in);
    const auto bytes = [&](const char* type, const std::string& where) {
      out << "    " << type << " const p" << number << " = " << where << ";\n";
    };
    const auto load = [&](const char* order, unsigned element) {
      loop << to << " = load_" << order << "<std::uint" << 8 * element << "_t>(p" << number << " + "
           << element << " * i); ";
    };
    const auto store = [&](const char* order, unsigned element) {
      loop << "store_" << order << "<std::uint" << 8 * element << "_t>(p" << number << " + " << element
           << " * i, " << to << "); ";
    };
    switch (in.op) {
      case Op::V_LD_BE:
        bytes("const std::byte*", text("run.words(", in.a, ")"));
        load("be", in.b);
        break;
      case Op::V_LD_N:
        bytes("const std::byte*", text("run.phv + ", in.a));
        load("le", in.b);
        break;
      case Op::V_ST_BE:
        bytes("std::byte*", text("run.room(", in.a, ")"));
        store("be", in.b);
        break;
      case Op::V_ST_N:
        bytes("std::byte*", text("run.phv + ", in.a));
        store("le", in.b);
        break;
      case Op::V_LD_REG:
        bytes("const std::byte*", text("run.cells(", operands, ")"));
        out << "    if (p" << number << " == nullptr) " << go(pc, in.c);
        load("le", plan.slices[in.a].bytes);
        break;
      case Op::V_ST_REG:  // a row out of range: store to an unused vector
        out << "    std::byte* const c" << number << " = run.cells(" << operands << ");\n";
        bytes("std::byte*", text("c", number, " ? c", number,
                                 " : reinterpret_cast<std::byte*>(run.vector<std::uint64_t>(0))"));
        store("le", plan.slices[in.a].bytes);
        break;
      case Op::V_BCAST:
        out << "    const auto p" << number << " = static_cast<" << word << ">(run.r[" << in.a << "]);\n";
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
  for (std::uint32_t pc = begin; pc < end; ++pc) used.insert(plan.code[pc].d);
  out << "    _Pragma(\"GCC ivdep\") for (std::size_t i = 0; i < " << vectors::count(words)
      << "; ++i) {\n      " << word << ' ';
  for (const std::uint32_t vector : used) out << (vector == *used.begin() ? "v" : ", v") << vector;
  out << ";\n      " << loop.str() << "\n    }\n  }\n";
  return out.str();
}

}  // namespace railweave::engine
