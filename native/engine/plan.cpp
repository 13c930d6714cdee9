// SPDX-License-Identifier: Apache-2.0
#include "engine/plan.hpp"

#include <algorithm>
#include <cstring>
#include <iterator>
#include <tuple>
#include <type_traits>
#include <utility>

#include "engine/hash.hpp"
#include "engine/vectors.hpp"

namespace railweave::engine {
namespace {

// Limits that no sane program reaches and that keep a hostile one from eating the machine.
constexpr std::uint32_t kMaxPhv = 1u << 20, kMaxCode = 1u << 23, kMaxItems = 1u << 20,
                        kMaxVectorWords = 1u << 24;
constexpr std::uint64_t kMaxBankBytes = 1ull << 31;

void require(bool condition, const char* what) {
  if (!condition) throw InvalidPlan(what);
}

/// Reads little-endian numbers, lists that follow their length, and structs from a byte string.
class Reader {
 public:
  explicit Reader(Bytes bytes) : rest_(bytes) {}

  template <typename T>
  void read(T& value) {
    if constexpr (std::is_integral_v<T> || std::is_enum_v<T>) {
      require(rest_.size() >= sizeof value, "plan: truncated");
      std::memcpy(&value, rest_.data(), sizeof value);
      rest_ = rest_.subspan(sizeof value);
    } else if constexpr (requires { value.fields(); }) {
      std::apply([this](auto&... fields) { (read(fields), ...); }, value.fields());
    } else if constexpr (requires { value.emplace_back(); }) {
      std::uint32_t count = 0;
      read(count);
      constexpr bool kIsCode = std::is_same_v<T, std::vector<Instruction>>;
      require(count <= (kIsCode ? kMaxCode : kMaxItems) && count * 4ull <= rest_.size(),
              "plan: a list is longer than the plan");
      for (; count > 0; --count) read(value.emplace_back());
    } else {
      for (auto& item : value) read(item);
    }
  }
  bool empty() const { return rest_.empty(); }

 private:
  Bytes rest_;
};

/// Checks every number of a plan that is later used as an index.
class Checker {
 public:
  explicit Checker(const Plan& plan) : plan_(plan) {}

  void check() const {
    sizes();
    headers();
    storage();
    for (const auto& table : plan_.tables) check_table(table);
    for (const auto& calculation : plan_.calculations) {
      require(calculation.algorithm < kAlgorithms, "plan: hash algorithm");
      check_inputs(calculation.inputs);
    }
    for (const auto& inputs : plan_.learn_lists) check_inputs(inputs);
    for (const auto& ranges : plan_.field_lists) {
      for (const auto& range : ranges) bits(range);
    }
    for (const auto& field : plan_.intrinsics) native(field);
    for (const auto pc : {plan_.parser, plan_.parsed, plan_.ingress, plan_.egress, plan_.deparser})
      counter(pc);
    for (const auto& instruction : plan_.code) check_instruction(instruction);
    require(!plan_.code.empty() && plan_.code.back().op == Op::END, "plan: the code has no end");
  }

 private:
  void sizes() const {
    require(plan_.phv_bytes <= kMaxPhv && plan_.metadata_bytes <= plan_.phv_bytes, "plan: PHV too large");
    require(plan_.registers <= 0x10000 && plan_.constants.size() <= plan_.registers, "plan: registers");
    require(plan_.wides <= 0x1000 && plan_.limbs <= 0x1000, "plan: wide registers");
    require(plan_.vectors <= 0x1000 && plan_.vector_length <= 0x10000, "plan: vector registers");
    require(plan_.vectors * plan_.vector_length <= kMaxVectorWords, "plan: vector registers");
    require(plan_.key_words <= 0x1000 && plan_.parameter_words <= 0x10000, "plan: keys");
    for (const auto& constant : plan_.wide_constants) {
      require(!constant.empty() && constant.size() <= plan_.limbs, "plan: wide constant");
    }
  }

  void offset(std::uint64_t at, std::uint64_t bytes) const {
    require(at + bytes <= plan_.phv_bytes, "plan: offset outside the PHV");
  }
  void counter(std::uint32_t pc) const { require(pc < plan_.code.size(), "plan: jump outside the code"); }
  void native(const NativeField& field) const {
    require(field.width <= 64, "plan: field width");
    if (field.width) offset(field.offset, 8);
  }

  void bits(const BitRange& range) const { offset(0, (std::uint64_t{range.position} + range.bits + 7) / 8); }

  void headers() const {
    for (const auto& header : plan_.headers) {
      offset(header.image, std::uint64_t{header.bytes} + 8);
      offset(header.valid, 1);
      if (header.variable == kNone) continue;
      require(header.variable < plan_.variables.size(), "plan: variable field");
      require(header.split <= 8ull * header.bytes, "plan: variable field");
    }
    for (const auto& variable : plan_.variables) {
      offset(variable.offset, std::uint64_t{variable.bytes} + VariablePlan::kLengthBytes + 8);
    }
    for (const auto& stack : plan_.stacks) check_stack(stack);
    for (const auto header : plan_.order) require(header < plan_.headers.size(), "plan: deparser order");
  }

  /// All elements have the same shape, so that one can be moved to another.
  void check_stack(const StackPlan& stack) const {
    offset(stack.next, 4);
    require(stack.width >= 1 && stack.headers.size() % stack.width == 0, "plan: stack");
    require(stack.of_unions || stack.width == 1, "plan: stack");
    for (std::size_t i = 0; i < stack.headers.size(); ++i) {
      require(stack.headers[i] < plan_.headers.size(), "plan: stack");
      const HeaderPlan& header = plan_.headers[stack.headers[i]];
      const HeaderPlan& first = plan_.headers[stack.headers[i % stack.width]];
      require(header.bytes == first.bytes, "plan: stack");
      require((header.variable == kNone) == (first.variable == kNone), "plan: stack");
      if (header.variable == kNone) continue;
      require(plan_.variables[header.variable].bytes == plan_.variables[first.variable].bytes, "plan: stack");
    }
  }

  void storage() const {
    std::uint64_t total = 0;
    for (const auto& bank : plan_.banks) {
      total += std::uint64_t{bank.rows} * bank.words * 4;
      require(total <= kMaxBankBytes, "plan: registers take more than 2 GiB");
    }
    for (const auto& array : plan_.arrays) {
      require(array.bank < plan_.banks.size() && array.width >= 1, "plan: register");
      const auto& bank = plan_.banks[array.bank];
      const std::uint64_t words = array.width <= 32 ? 1 : (std::uint64_t{array.width} + 63) / 64 * 2;
      require(array.word + words <= bank.words && array.size <= bank.rows, "plan: register");
    }
    for (const auto& slice : plan_.slices) {
      const std::uint64_t cells = vectors::count(slice.length);
      require(slice.bank < plan_.banks.size() && cells <= plan_.vector_length, "plan: slice");
      require(slice.bytes == 4 || slice.bytes == 8, "plan: slice");
      require(slice.word + cells * (slice.bytes / 4) <= plan_.banks[slice.bank].words, "plan: slice");
    }
    for (const auto& meter : plan_.meters) require(meter.rates <= 8, "plan: meter rates");
    std::uint64_t cells = 0;
    for (const auto size : plan_.counters) cells += size;
    for (const auto& meter : plan_.meters) cells += meter.size;
    require(cells <= 1ull << 26, "plan: counters and meters take too much memory");
  }

  void check_table(const TablePlan& table) const {
    require(table.kind <= MatchKind::kTernary && table.words <= plan_.key_words, "plan: table");
    require(table.actions.size() == table.next.size(), "plan: table actions");
    for (const auto pc : table.actions) counter(pc);
    for (const auto pc : table.next) counter(pc);
    counter(table.miss);
    if (table.hit != kNone) counter(table.hit);
    if (table.meter != kNone) {
      require(table.meter < plan_.meters.size(), "plan: direct meter");
      native(table.meter_result);
      bits(table.meter_bits);
    }
    require(table.selector == kNone || table.selector < plan_.calculations.size(), "plan: selector");
  }

  void check_inputs(const std::vector<InputPlan>& inputs) const {
    std::uint64_t bits = 0;
    for (const auto& input : inputs) {
      bits += input.width;
      if (input.valid != kNone) offset(input.valid, 1);
      switch (input.kind) {
        case InputPlan::kBits:
          offset(0, (std::uint64_t{input.offset} + input.width + 7) / 8 + 8);
          break;
        case InputPlan::kNative:
          require(input.width <= 64, "plan: input width");
          offset(input.offset, 8);
          break;
        case InputPlan::kConstant:
          require(input.offset < plan_.wide_constants.size(), "plan: input constant");
          require(input.width <= 64 * plan_.wide_constants[input.offset].size(), "plan: input constant");
          break;
        case InputPlan::kVariable:
          require(input.offset < plan_.variables.size(), "plan: input field");
          bits += 8ull * plan_.variables[input.offset].bytes;
          break;
        case InputPlan::kPayload:
          break;
        default:
          throw InvalidPlan("plan: input kind");
      }
    }
    require(bits <= kMaxPhv, "plan: input of a calculation");
  }

  void check_instruction(const Instruction& instruction) const {
    require(instruction.op < Op::kCount, "plan: unknown instruction");
    const char* signature = kOps[static_cast<std::size_t>(instruction.op)].signature;
    const std::uint32_t operands[] = {instruction.d, instruction.a, instruction.b, instruction.c};
    for (int i = 0; i < 4; ++i) check_operand(signature[i], operands[i], instruction);
  }

  void check_operand(char kind, std::uint32_t value, const Instruction& in) const {
    switch (kind) {
      case '-':
      case 'i':
        return;
      case 'R':
        return require(value < plan_.registers && value >= plan_.constants.size(), "plan: register number");
      case 'r':
        return require(value < plan_.registers, "plan: register number");
      case 'W':
        return require(value < plan_.wides, "plan: wide register number");
      case 'V':
        return require(value < plan_.vectors, "plan: vector register number");
      case 'o':
        return offset(value, 8);
      case 'O':
        return offset(value, std::uint64_t{vectors::count(in.c)} * in.b);
      case 'z':
        return require(value == 1 || value == 2 || value == 4 || value == 8, "plan: element of a vector");
      case 'n':
        return require(vectors::count(value) <= plan_.vector_length, "plan: length of a vector");
      case 'x':
        return require((value & 0xff) + (value >> 8) <= 64 && (value >> 8) >= 1, "plan: bit field");
      case 'B':
        return offset(0, (std::uint64_t{value} + in.b + 7) / 8 + 8);
      case 'w':
        return check_width(value, in);
      case 'p':
        return counter(value);
      case 'P':
        return require(value < plan_.parameter_words, "plan: parameter");
      case 'Q':
        return require(std::uint64_t{value} + (in.b + 63ull) / 64 <= plan_.parameter_words,
                       "plan: parameter");
      case 'e':
      case 'E':
        return check_member(kind, value, in);
      default:
        return check_object(kind, value);
    }
  }

  /// A member of the elements of stack a.
  void check_member(char kind, std::uint32_t value, const Instruction& in) const {
    const StackPlan& stack = plan_.stacks[in.a];
    require(value < stack.width && !stack.headers.empty(), "plan: stack");
    if (kind == 'E') check_object('H', stack.headers[value]);
  }

  void check_width(std::uint32_t value, const Instruction& in) const {
    const bool wide = in.op == Op::W_LD || in.op == Op::W_ST || in.op == Op::W_PARAM;
    require(value >= 1 && value <= (wide ? 64 * plan_.limbs : 64), "plan: width");
  }

  void check_object(char kind, std::uint32_t value) const {
    if (kind == 'y') return require(value <= plan_.key_words, "plan: key word");
    const std::pair<char, std::size_t> sizes[] = {
        {'h', plan_.headers.size()},      {'H', plan_.headers.size()},       {'v', plan_.variables.size()},
        {'s', plan_.stacks.size()},       {'g', plan_.arrays.size()},        {'b', plan_.slices.size()},
        {'t', plan_.tables.size()},       {'c', plan_.counters.size()},      {'m', plan_.meters.size()},
        {'k', plan_.calculations.size()}, {'K', plan_.wide_constants.size()}};
    const auto* of = std::find_if(std::begin(sizes), std::end(sizes),
                                  [kind](const auto& one) { return one.first == kind; });
    require(of != std::end(sizes), "plan: unknown operand");
    require(value < of->second, "plan: no such object");
    if (kind == 'H') require(plan_.headers[value].variable != kNone, "plan: no variable field");
  }

  const Plan& plan_;
};

/// Which headers `copy_image` may copy 16 bytes at a time.
void set_rooms(Plan& plan) {
  constexpr std::uint32_t kStep = 16;
  std::vector<std::uint32_t> starts{plan.phv_bytes};
  for (const auto& header : plan.headers) starts.insert(starts.end(), {header.image, header.valid});
  for (const auto& variable : plan.variables) starts.push_back(variable.offset);
  for (const auto& stack : plan.stacks) starts.push_back(stack.next);
  std::sort(starts.begin(), starts.end());
  for (auto& header : plan.headers) {
    const std::uint32_t room = (header.bytes + kStep - 1) / kStep * kStep;
    const auto next = std::upper_bound(starts.begin(), starts.end(), header.image);
    const bool free = header.image >= plan.metadata_bytes && *next - header.image >= room;
    if (free && room <= HeaderPlan::kMostRoom) header.room = room;
  }
}

/// The bytes of the PHV that an instruction touches by offset: from, to.
std::pair<std::uint64_t, std::uint64_t> touched(const Instruction& in) {
  const char* signature = kOps[static_cast<std::size_t>(in.op)].signature;
  for (int i = 1; i < 4; ++i) {
    const std::uint64_t at = i == 1 ? in.a : i == 2 ? in.b : in.c;
    if (signature[i] == 'o') return {at, at + 8};
    if (signature[i] == 'O') return {at, at + std::uint64_t{vectors::count(in.c)} * in.b};
    if (signature[i] == 'B') return {at / 8, (at + in.b + 7) / 8 + 8};
  }
  return {0, 0};
}

/// Whether only vector instructions use the last header of the PHV, and each write covers the whole header.
bool used_whole(const Plan& plan, std::uint32_t number) {
  const HeaderPlan& header = plan.headers[number];
  const auto in_reach = [&](std::uint64_t from, std::uint64_t to) { return from < to && to > header.image; };
  const auto holds = [&](const BitRange& range) {
    return in_reach(range.position / 8, (std::uint64_t{range.position} + range.bits + 7) / 8);
  };
  const auto reads = [&](const std::vector<InputPlan>& inputs) {
    return std::any_of(inputs.begin(), inputs.end(), [&](const InputPlan& input) {
      const std::uint64_t from = input.kind == InputPlan::kBits ? input.offset / 8 : input.offset;
      const bool of_phv = input.kind == InputPlan::kBits || input.kind == InputPlan::kNative;
      return of_phv && in_reach(from, from + input.width / 8 + 8);
    });
  };
  for (const auto& calculation : plan.calculations) {
    if (reads(calculation.inputs)) return false;
  }
  for (const auto& list : plan.learn_lists) {
    if (reads(list)) return false;
  }
  for (const auto& list : plan.field_lists) {
    if (std::any_of(list.begin(), list.end(), holds)) return false;
  }
  for (const auto& table : plan.tables) {
    if (holds(table.meter_bits)) return false;
  }
  for (const auto& stack : plan.stacks) {
    if (std::count(stack.headers.begin(), stack.headers.end(), number) != 0) return false;
  }
  std::uint32_t behind_cold = 0;
  for (std::uint32_t pc = 0; pc < plan.code.size(); ++pc) {
    const Instruction& in = plan.code[pc];
    if (in.op == Op::COLD) behind_cold = std::max(behind_cold, in.a);
    if ((in.op == Op::HDR_COPY || in.op == Op::HDR_EQ) && (in.a == number || in.b == number)) return false;
    const auto [from, to] = touched(in);
    if (!in_reach(from, to)) continue;
    const bool inside = from >= header.image && to <= header.image + header.bytes;
    const bool whole = inside && to - from == header.bytes;
    if ((in.op == Op::V_LD_BE && inside) || (in.op == Op::V_ST_BE && whole)) continue;
    if (in.op == Op::V_LD_BE || in.op == Op::V_ST_BE || pc >= behind_cold)
      return false;  // COLD puts it there first
  }
  return true;
}

/// Finds a large header that need not be copied into the PHV.
void set_large(Plan& plan) {
  constexpr std::uint32_t kWorthIt = 128;  // bytes
  const auto last = std::max_element(plan.headers.begin(), plan.headers.end(),
                                     [](const auto& a, const auto& b) { return a.image < b.image; });
  if (last == plan.headers.end() || last->bytes < kWorthIt || last->variable != kNone) return;
  const auto fits = [&](std::uint32_t offset, std::uint32_t bytes) { return offset + bytes <= last->image; };
  bool behind_all = fits(plan.metadata_bytes, 0);
  for (const auto& header : plan.headers) {
    behind_all &= fits(header.valid, 1) && (&header == &*last || fits(header.image, header.bytes));
  }
  for (const auto& variable : plan.variables) {
    behind_all &= fits(variable.offset, VariablePlan::kLengthBytes + variable.bytes);
  }
  for (const auto& stack : plan.stacks) behind_all &= fits(stack.next, 4);
  const auto number = static_cast<std::uint32_t>(last - plan.headers.begin());
  if (!behind_all || !used_whole(plan, number)) return;
  plan.large = number;
  plan.large_at = last->image;
}

}  // namespace

Plan Plan::parse(Bytes bytes) {
  Reader in(bytes);
  std::uint32_t magic = 0;
  in.read(magic);
  require(magic == kPlanMagic, "plan: not a plan of this version");
  Plan plan;
  in.read(plan);
  require(in.empty(), "plan: bytes left over");
  Checker(plan).check();
  set_rooms(plan);
  set_large(plan);
  return plan;
}

}  // namespace railweave::engine
