// SPDX-License-Identifier: Apache-2.0
// The instruction set of a plan. The lowering (Python) emits it, the interpreter runs it, and the loader
// checks every operand against the signature given here, so that no plan can reach outside its own memory.
#pragma once

#include <cstdint>
#include <tuple>

namespace railweave::engine {

/// Operands: d, a, b, c. One signature character each:
///   R register written   r register read   W wide register   V vector register;
///   Offsets in the PHV: o of a field (8 bytes readable)   O of a vector   z bytes of its element;
///   Bits: x bit field (shift | width << 8)   B bit position in the PHV, followed by its width   w width;
///   Parameters of the action: P a word   Q a word, followed by its width;
///   Headers: h header   H header with a variable field   v variable field;
///   Stacks: s stack   e member of its elements, after s   E the same with a variable field;
///   Objects: g register array   b bank slice   t table   c counter   m meter   k calculation;
///   Others: p program counter   K wide constant   n length of vectors   y key word   i immediate   - nothing
// clang-format off
#define RAILWEAVE_ENGINE_CONTROL(X) /* done by the interpreter and by compiled code themselves */ \
  X(END, "----") X(RET, "----") X(JMP, "-p--") X(CALL, "-p--") X(TABLE, "-t--") X(ASSERT, "ri--") \
  X(COLD, "-p--") X(JOIN, "----") /* slow path up to JOIN: always interpreted */
#define RAILWEAVE_ENGINE_STEPS(X) /* functions of ops.hpp */ \
  X(JZ, "rp--") X(JNZ, "rp--") X(JEQ, "rrp-") X(JNE, "rrp-") X(JLTU, "rrp-") X(JLEU, "rrp-") \
  X(JLTS, "rrp-") X(JLES, "rrp-") X(EXIT, "----") \
  /* loads and stores */ \
  X(MOV, "Rr--") X(PARAM, "RP--") X(LD_U8, "Ro--") X(LD_BE16, "Ro--") X(LD_BE32, "Ro--") \
  X(LD_BE64, "Ro--") X(LD_BITS, "Rox-") X(LD_N32, "Ro--") X(LD_N64, "Ro--") X(ST_U8, "ro--") \
  X(ST_BE16, "ro--") X(ST_BE32, "ro--") X(ST_BE64, "ro--") X(ST_BITS, "rox-") X(ST_N32, "ro--") \
  X(ST_N64, "ro--") \
  /* 64-bit arithmetic; comparisons give 0 or 1 */ \
  X(ADD, "Rrr-") X(SUB, "Rrr-") X(MUL, "Rrr-") X(DIV, "Rrr-") X(MOD, "Rrr-") X(AND, "Rrr-") \
  X(OR, "Rrr-") X(XOR, "Rrr-") X(NOT, "Rr--") X(SHL, "Rrr-") X(SHR, "Rrr-") X(SAR, "Rrr-") \
  X(SEXT, "Rrw-") X(USAT, "Rrw-") X(SSAT, "Rrw-") X(EQ, "Rrr-") X(NE, "Rrr-") X(LTU, "Rrr-") \
  X(LEU, "Rrr-") X(LTS, "Rrr-") X(LES, "Rrr-") X(LNOT, "Rr--") X(BOOL, "Rr--") X(SELECT, "Rrrr") \
  /* two's complement integers of more than 64 bits */ \
  X(W_LD, "WBw-") X(W_ST, "WBw-") X(W_PARAM, "WQw-") X(W_CONST, "WK--") X(W_FROM_U, "Wr--") \
  X(W_FROM_S, "Wr--") X(W_TO, "RW--") X(W_ADD, "WWW-") X(W_SUB, "WWW-") X(W_MUL, "WWW-") \
  X(W_AND, "WWW-") X(W_OR, "WWW-") X(W_XOR, "WWW-") X(W_NOT, "WW--") X(W_SHL, "WWr-") X(W_SHR, "WWr-") \
  X(W_ZEXT, "WWi-") X(W_SEXT, "WWi-") X(W_USAT, "WWi-") X(W_SSAT, "WWi-") X(W_EQ, "RWW-") \
  X(W_LT, "RWW-") X(W_BOOL, "RW--") X(W_SELECT, "WrWW") X(W_DIV, "WWW-") X(W_MOD, "WWW-") \
  X(W_REG_RD, "Wgrp") X(W_REG_WR, "Wgr-") \
  /* vectors: registers for them hold nothing behind a jump or a JOIN */ \
  X(V_LD_BE, "VOzn") X(V_ST_BE, "VOzn") X(V_LD_N, "VOzn") X(V_ST_N, "VOzn") X(V_BCAST, "Vr-n") \
  X(V_LD_REG, "Vbrp") X(V_ST_REG, "Vbr-") X(V_MOV, "VV-n") X(V_ADD, "VVVn") X(V_SUB, "VVVn") \
  X(V_MUL, "VVVn") X(V_AND, "VVVn") X(V_OR, "VVVn") X(V_XOR, "VVVn") X(V_NOT, "VV-n") X(V_SHL, "VVin") \
  X(V_SHR, "VVin") X(V_SAR, "VVin") X(V_EQ, "VVVn") X(V_LTU, "VVVn") X(V_LTS, "VVVn") X(V_MINU, "VVVn") \
  X(V_MAXU, "VVVn") X(V_MINS, "VVVn") X(V_MAXS, "VVVn") X(V_ADDUS, "VVVn") X(V_SUBUS, "VVVn") \
  X(V_ADDSS, "VVVn") X(V_SUBSS, "VVVn") X(V_SELECT, "VVVn") \
  /* headers */ \
  X(HDR_ADD, "-h--") X(HDR_REMOVE, "-h--") X(HDR_HIDE, "-h--") X(HDR_COPY, "-hh-") X(HDR_EQ, "Rhh-") \
  X(STACK_PUSH, "-sr-") X(STACK_POP, "-sr-") X(STACK_COPY, "-ss-") X(VL_COPY, "-vv-") X(W_LD_VL, "Wv--") \
  /* parser */ \
  X(EXTRACT, "-h--") X(EXTRACT_VL, "-Hr-") X(EXTRACT_NEXT, "-se-") X(EXTRACT_NEXT_VL, "rsE-") \
  X(ADVANCE, "-r--") X(LOOKAHEAD, "Riw-") X(W_LOOKAHEAD, "Wii-") X(PARSE_ERROR, "-r--") X(MEMBER, "Rt--") \
  /* messages */ \
  X(LOGGING, "-p--") X(LOG_VALUE, "ri--") X(W_LOG_VALUE, "W---") X(LOG, "-i--") X(NOTE, "-i--") X(NOTE_TABLE, "-t--") \
  /* keys of tables */ \
  X(KEY_SET, "ryw-") X(KEY, "ryw-") X(W_KEY, "Wyi-") \
  /* externs */ \
  X(REG_RD, "Rgrp") X(REG_WR, "rgr-") X(COUNT, "-cr-") X(METER, "Rmrp") X(RANDOM, "Rrrp") \
  X(HASH, "Rkrr") X(DIGEST, "-r--") X(CLONE, "-rr-") X(RESUBMIT, "-r--") X(RECIRCULATE, "-r--") X(TRUNCATE, "-r--") \
  X(CHECKSUM, "Rk--")
// clang-format on
#define RAILWEAVE_ENGINE_OPS(X) RAILWEAVE_ENGINE_CONTROL(X) RAILWEAVE_ENGINE_STEPS(X)

enum class Op : std::uint16_t {
#define X(name, signature) name,
  RAILWEAVE_ENGINE_OPS(X)
#undef X
      kCount,
};

/// The fields of a struct in the order in which they stand in a plan's bytes: `Plan::parse` reads them by
/// this, and the lowering packs them by the names (`PLAN_LAYOUT` in the bindings).
#define RAILWEAVE_PLAN_FIELDS(...)                         \
  static constexpr const char* kFieldNames = #__VA_ARGS__; \
  auto fields() { return std::tie(__VA_ARGS__); }

struct Instruction {
  Op op;
  std::uint16_t d;
  std::uint32_t a, b, c;
  RAILWEAVE_PLAN_FIELDS(op, d, a, b, c)
};
static_assert(sizeof(Instruction) == 16);

struct OpInfo {
  const char* name;
  const char* signature;
};

inline constexpr OpInfo kOps[] = {
#define X(name, signature) {#name, signature},
    RAILWEAVE_ENGINE_OPS(X)
#undef X
};

/// Where an instruction goes if it jumps: its operand of kind p or, of the parser, where that ends.
constexpr std::uint32_t target(Op op, const Instruction& in, std::uint32_t parsed) {
  const char* const signature = kOps[static_cast<std::size_t>(op)].signature;
  return signature[1] == 'p' ? in.a : signature[2] == 'p' ? in.b : signature[3] == 'p' ? in.c : parsed;
}

}  // namespace railweave::engine
