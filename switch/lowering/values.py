# SPDX-License-Identifier: Apache-2.0
"""Instructions for expressions: in one 64-bit register where that is exact, else in a wide one."""

from __future__ import annotations

from dataclasses import dataclass

from railweave.switch.errors import UnsupportedConstruct
from railweave.switch.lowering.code import Code, Label, Operand
from railweave.switch.lowering.expr import Expr
from railweave.switch.lowering.fields import Field

ARITHMETIC = {"+": "ADD", "-": "SUB", "*": "MUL", "&": "AND", "|": "OR", "^": "XOR"}
DIVISION = {"/": "DIV", "%": "MOD"}


@dataclass
class Values(Code):
    """Computes each value once per scope."""

    def _exact(self, node: Expr) -> None:
        """Refuse an unbounded value where the exact value is needed."""
        if node.low is None or node.high is None:
            raise UnsupportedConstruct("a number of unbounded width (a left shift by a variable)", self.where)

    # Numbers of up to 64 bits.

    def number(self, node: Expr) -> Operand:
        """A register that holds the value modulo 2^64 (truth values: 0 or 1)."""
        found = self._numbers.get(node.number)
        if found is None:
            found = self._number(node) if self._native(node) else self._from_wide(node)
            self._numbers[node.number] = found
        return found

    def branch(self, node: Expr, target: Label, when: bool) -> None:
        """Go to `target` if the truth of `node` is `when`; second sides of `and`, `or` only where needed."""
        if node.op == "not":
            self.branch(node.args[0], target, not when)
        elif node.op in {"and", "or"} and node.number not in self._numbers:
            decided_by_one = (node.op == "or") == when
            skip = target if decided_by_one else Label()
            self.branch(node.args[0], skip, when == decided_by_one)
            known = dict(self._numbers), dict(self._wides)  # what the second side computes may be skipped
            self.branch(node.args[1], target, when)
            self._numbers, self._wides = known
            if not decided_by_one:
                self.place(skip)
        elif node.op in {"==", "<", "<="} and self._native(node):
            a, b = (self.number(arg) for arg in node.args)
            suffix = "U" if all(arg.fits_unsigned64 for arg in node.args) else "S"
            if node.op == "==":
                self.op("JEQ" if when else "JNE", a, b, target)
            elif when:
                self.op(("JLT" if node.op == "<" else "JLE") + suffix, a, b, target)
            else:  # not a < b: b <= a
                self.op(("JLE" if node.op == "<" else "JLT") + suffix, b, a, target)
        else:
            inner = node.args[0] if node.op == "d2b" and self._native(node) else node
            self.op("JNZ" if when else "JZ", self.number(inner), target)

    def _from_wide(self, node: Expr) -> Operand:
        result = self.fresh()
        if node.op in {"==", "<", "<=", "d2b"}:
            self._compare_wide(node, result)
        else:
            self.op("W_TO", result, self._wide(node))
        return result

    def _native(self, node: Expr) -> bool:  # noqa: PLR0911 - one case after the other
        """Whether 64-bit instructions can give the value modulo 2^64."""
        args = node.args
        match node.op:
            case "field":
                return self.native_field(node.leaf)
            case "variable":
                return False
            case "param" | "reg":
                return bool(node.leaf.width <= 64)
            case "lookahead":
                return bool(node.leaf[1] <= 64)
            case ">>" | "d2b":
                return args[0].fits64 and all(arg.fits_unsigned64 for arg in args[1:])
            case "<<":
                return args[1].fits_unsigned64
            case "/" | "%":
                return args[0].fits_unsigned64 and args[1].fits_unsigned64
            case "==" | "<" | "<=":
                return all(arg.fits_unsigned64 for arg in args) or all(arg.fits_signed64 for arg in args)
            case "two_comp_mod":
                return bool(node.leaf <= 64)
            case "usat_cast":
                return args[0].fits_signed64 and node.leaf < 64
            case "sat_cast":
                return args[0].fits_signed64 and node.leaf <= 64
            case _:
                return True

    def native_field(self, member: Field) -> bool:
        """Whether the field can be loaded and stored as one 64-bit word."""
        return member.width <= 64 and (
            member.metadata or member.is_valid_bit or member.position % 8 + member.width <= 64
        )

    def _number(self, node: Expr) -> Operand:  # noqa: PLR0912 - one case after the other
        if node.op == "const":
            return self.constant(node.leaf)
        args = [] if node.op == "reg" else [self.number(arg) for arg in node.args]
        if node.op == "b2d":
            return args[0]
        if node.op == "two_comp_mod" and node.leaf == 64:
            return args[0]
        result = self.fresh()
        match node.op:
            case "field":
                self._load(result, node.leaf)
            case "param":
                self.op("PARAM", result, node.leaf.word)
            case "reg":
                self._load_register(result, node)
            case "lookahead":
                self.op("LOOKAHEAD", result, *node.leaf)
            case "stack_count":
                self.op("LD_N32", result, self.layout.stack_next[node.leaf])
            case "header_eq":
                a, b = (self.headers.by_name[name].index for name in node.leaf)
                self.op("HDR_EQ", result, a, b)
            case "~":
                self.op("NOT", result, args[0])
            case "not":
                self.op("LNOT", result, args[0])
            case "d2b":
                self.op("BOOL", result, args[0])
            case "and" | "or":
                self.op(node.op.upper(), result, *args)
            case "select":
                self.op("SELECT", result, *args)
            case "two_comp_mod":
                self.op("SEXT", result, args[0], node.leaf)
            case "usat_cast" | "sat_cast":
                self.op("USAT" if node.op == "usat_cast" else "SSAT", result, args[0], node.leaf)
            case _:
                self.op(self._binary_op(node), result, *args)
        return result

    @staticmethod
    def _binary_op(node: Expr) -> str:
        unsigned = all(arg.fits_unsigned64 for arg in node.args)
        if node.op == ">>":
            return "SHR" if node.args[0].fits_unsigned64 else "SAR"
        if node.op in {"<", "<="}:
            return ("LT" if node.op == "<" else "LE") + ("U" if unsigned else "S")
        return {**ARITHMETIC, **DIVISION, "<<": "SHL", "==": "EQ"}[node.op]

    def _load_register(self, result: int, node: Expr) -> None:
        following = Label()  # the index has been checked before
        self.op("REG_RD", result, node.leaf.index, self.number(node.args[0]), following)
        self.place(following)

    def _bits(self, member: Field) -> tuple[str, int, int]:
        """Which load or store, at which offset, and its bit-field operand."""
        if member.is_valid_bit:
            return "U8", self.layout.validity[member.header], 0
        if member.metadata:
            return ("N32" if member.width <= 32 else "N64"), self.layout.offsets[member], 0
        position = self.layout.bit_position(member)
        offset, within = divmod(position, 8)
        whole = {8: "U8", 16: "BE16", 32: "BE32", 64: "BE64"}
        if within == 0 and member.width in whole:
            return whole[member.width], offset, 0
        return "BITS", offset, 64 - within - member.width | member.width << 8

    def _load(self, result: int, member: Field) -> None:
        kind, offset, bits = self._bits(member)
        self.op("LD_" + kind, result, offset, bits)
        if member.signed and member.width < 64:
            self.op("SEXT", result, result, member.width)

    # Numbers of any width.

    def _note(self, node: Expr) -> None:
        if node.low is not None and node.high is not None:
            bits = max(node.low.bit_length(), node.high.bit_length()) + 1
            self.limbs = max(self.limbs, -(-bits // 64))

    def wide(self, node: Expr) -> int:
        """A wide register with the value (modulo 2^(64 limbs) if it has no bound)."""
        found = self._wides.get(node.number)
        if found is None:
            if self._native(node) and node.fits64:
                found = self.fresh_wide()
                self.limbs = max(self.limbs, 2)
                self.op("W_FROM_U" if node.fits_unsigned64 else "W_FROM_S", found, self.number(node))
            else:
                found = self._wide(node)
            self._wides[node.number] = found
        return found

    def _wide(self, node: Expr) -> int:  # noqa: PLR0912 - one case after the other
        self._note(node)
        result = self.fresh_wide()
        match node.op:
            case "const":
                self.op("W_CONST", result, self.wide_constant(node.leaf, node.leaf.bit_length() + 1))
            case "field":
                self.op("W_LD", result, self.layout.bit_position(node.leaf), node.leaf.width)
                if node.leaf.signed:
                    self.op("W_SEXT", result, result, node.leaf.width)
            case "variable":
                self.op("W_LD_VL", result, self.layout.variables[node.leaf])
            case "param":
                self.op("W_PARAM", result, node.leaf.word, node.leaf.width)
            case "lookahead":
                self.op("W_LOOKAHEAD", result, *node.leaf)
            case "reg":
                following = Label()
                self.op("W_REG_RD", result, node.leaf.index, self.number(node.args[0]), following)
                self.place(following)
            case "select":
                self.op(
                    "W_SELECT",
                    result,
                    self.number(node.args[0]),
                    self.wide(node.args[1]),
                    self.wide(node.args[2]),
                )
            case "~":
                self.op("W_NOT", result, self.wide(node.args[0]))
            case "two_comp_mod":
                self.op("W_SEXT", result, self.wide(node.args[0]), node.leaf)
            case "usat_cast" | "sat_cast":
                self._exact(node.args[0])
                name = "W_USAT" if node.op == "usat_cast" else "W_SSAT"
                self.op(name, result, self.wide(node.args[0]), node.leaf)
            case "<<" | ">>":
                self._shift_wide(node, result)
            case _:
                if node.op in DIVISION:
                    for arg in node.args:
                        self._exact(arg)
                name = "W_" + {**ARITHMETIC, **DIVISION}[node.op]
                self.op(name, result, self.wide(node.args[0]), self.wide(node.args[1]))
        return result

    def _shift_wide(self, node: Expr, result: int) -> None:
        if node.op == ">>":
            self._exact(node.args[0])
        if not node.args[1].fits_unsigned64:
            raise UnsupportedConstruct("a shift by a number of more than 64 bits", self.where)
        name = "W_SHL" if node.op == "<<" else "W_SHR"
        self.op(name, result, self.wide(node.args[0]), self.number(node.args[1]))

    def _compare_wide(self, node: Expr, result: int) -> None:
        for arg in node.args:
            self._exact(arg)
        values = [self.wide(arg) for arg in node.args]
        if node.op == "d2b":
            self.op("W_BOOL", result, values[0])
        elif node.op == "==":
            self.op("W_EQ", result, *values)
        elif node.op == "<":
            self.op("W_LT", result, *values)
        else:
            self.op("W_LT", result, values[1], values[0])
            self.op("LNOT", result, result)
