# SPDX-License-Identifier: Apache-2.0
"""Instructions for expressions: in one 64-bit register where that is exact, else in a wide one.

Each value is computed once per scope.
"""

from __future__ import annotations

from railweave.switch.errors import UnsupportedConstruct
from railweave.switch.lowering.code import Code, Label, Operand
from railweave.switch.lowering.expr import Expr
from railweave.switch.lowering.fields import Field

ARITHMETIC = {"+": "ADD", "-": "SUB", "*": "MUL", "&": "AND", "|": "OR", "^": "XOR"}
DIVISION = {"/": "DIV", "%": "MOD"}
LOGIC = {"~": "NOT", "not": "LNOT", "d2b": "BOOL", "and": "AND", "or": "OR", "select": "SELECT"}


def _exact(out: Code, node: Expr) -> None:
    """Refuse an unbounded value where the exact value is needed."""
    if node.low is None or node.high is None:
        raise UnsupportedConstruct("a number of unbounded width (a left shift by a variable)", out.where)


# Numbers of up to 64 bits.


def compute(out: Code, node: Expr) -> Operand:
    """Return a register that holds the value modulo 2^64 (truth values: 0 or 1)."""
    found = out.known.get(node.number)
    if found is None:
        if _native(node):
            found = _compute(out, node)
        else:
            found = out.fresh()
            if node.op in {"==", "<", "<=", "d2b"}:
                _compare_wide(out, node, found)
            else:
                out.op("W_TO", found, _compute_wide(out, node))
        out.known[node.number] = found
    return found


def branch(out: Code, node: Expr, target: Label, when: bool) -> None:
    """Go to `target` if the truth of `node` is `when`; second sides of `and`, `or` only where needed."""
    if node.op == "not":
        branch(out, node.args[0], target, not when)
    elif node.op in {"and", "or"} and node.number not in out.known:
        decided_by_one = (node.op == "or") == when
        skip = target if decided_by_one else Label()
        branch(out, node.args[0], skip, when == decided_by_one)
        known = dict(out.known), dict(out.known_wide)  # the computation of the second side may be skipped
        branch(out, node.args[1], target, when)
        out.known, out.known_wide = known
        if not decided_by_one:
            out.place(skip)
    elif node.op in {"==", "<", "<="} and _native(node):
        a, b = (compute(out, arg) for arg in node.args)
        suffix = "U" if all(arg.fits_unsigned64 for arg in node.args) else "S"
        if node.op == "==":
            out.op("JEQ" if when else "JNE", a, b, target)
        elif when:
            out.op(("JLT" if node.op == "<" else "JLE") + suffix, a, b, target)
        else:  # not a < b: b <= a
            out.op(("JLE" if node.op == "<" else "JLT") + suffix, b, a, target)
    else:
        inner = node.args[0] if node.op == "d2b" and _native(node) else node
        out.op("JNZ" if when else "JZ", compute(out, inner), target)


def _native(node: Expr) -> bool:  # noqa: PLR0911 - one case after the other
    """Return whether 64-bit instructions can give the value modulo 2^64."""
    args = node.args
    match node.op:
        case "field":
            return bool(node.leaf.is_native)
        case "variable":
            return False
        case "param" | "reg" | "lookahead":
            return node.fits_unsigned64
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


def _compute(out: Code, node: Expr) -> Operand:
    if node.op == "const":
        return out.constant(node.leaf)
    args = [] if node.op == "reg" else [compute(out, arg) for arg in node.args]
    if node.op == "b2d" or (node.op == "two_comp_mod" and node.leaf == 64):
        return args[0]
    result = out.fresh()
    match node.op:
        case "field":
            kind, offset, bits = field_access(out, node.leaf)
            out.op("LD_" + kind, result, offset, bits)
            if node.leaf.signed and node.leaf.width < 64:
                out.op("SEXT", result, result, node.leaf.width)
        case "param":
            out.op("PARAM", result, node.leaf.word)
        case "reg":
            following = Label()  # the index has been checked before
            out.op("REG_RD", result, node.leaf.index, compute(out, node.args[0]), following)
            out.place(following)
        case "lookahead":
            out.op("LOOKAHEAD", result, *node.leaf)
        case "stack_count":
            out.op("LD_N32", result, out.layout.stack_next[node.leaf])
        case "header_eq":
            a, b = (out.headers.by_name[name].index for name in node.leaf)
            out.op("HDR_EQ", result, a, b)
        case "two_comp_mod":
            out.op("SEXT", result, args[0], node.leaf)
        case "usat_cast" | "sat_cast":
            out.op("USAT" if node.op == "usat_cast" else "SSAT", result, args[0], node.leaf)
        case _:
            out.op(_op(node), result, *args)
    return result


def _op(node: Expr) -> str:
    unsigned = all(arg.fits_unsigned64 for arg in node.args)
    if node.op == ">>":
        return "SHR" if node.args[0].fits_unsigned64 else "SAR"
    if node.op in {"<", "<="}:
        return ("LT" if node.op == "<" else "LE") + ("U" if unsigned else "S")
    return {**ARITHMETIC, **DIVISION, **LOGIC, "<<": "SHL", "==": "EQ"}[node.op]


def field_access(out: Code, member: Field) -> tuple[str, int, int]:
    """Return the suffix of the load or store, the offset, and the bit-field operand."""
    if member.is_valid_bit:
        return "U8", out.layout.validity[member.header], 0
    if member.metadata:
        return ("N32" if member.width <= 32 else "N64"), out.layout.offsets[member], 0
    position = out.layout.bit_position(member)
    offset, within = divmod(position, 8)
    whole = {8: "U8", 16: "BE16", 32: "BE32", 64: "BE64"}
    if within == 0 and member.width in whole:
        return whole[member.width], offset, 0
    return "BITS", offset, 64 - within - member.width | member.width << 8


# Numbers of any width.


def compute_wide(out: Code, node: Expr) -> int:
    """Return a wide register with the value (modulo 2^(64 limbs) if it has no bound)."""
    found = out.known_wide.get(node.number)
    if found is None:
        if _native(node) and node.fits64:
            found = out.fresh_wide()
            out.limbs = max(out.limbs, 2)
            out.op("W_FROM_U" if node.fits_unsigned64 else "W_FROM_S", found, compute(out, node))
        else:
            found = _compute_wide(out, node)
        out.known_wide[node.number] = found
    return found


def _compute_wide(out: Code, node: Expr) -> int:  # noqa: PLR0912 - one case after the other
    if node.low is not None and node.high is not None:
        bits = max(node.low.bit_length(), node.high.bit_length()) + 1
        out.limbs = max(out.limbs, -(-bits // 64))
    result = out.fresh_wide()
    match node.op:
        case "const":
            out.op("W_CONST", result, out.wide_constant(node.leaf, node.leaf.bit_length() + 1))
        case "field":
            out.op("W_LD", result, out.layout.bit_position(node.leaf), node.leaf.width)
            if node.leaf.signed:
                out.op("W_SEXT", result, result, node.leaf.width)
        case "variable":
            out.op("W_LD_VL", result, out.layout.variables[node.leaf])
        case "param":
            out.op("W_PARAM", result, node.leaf.word, node.leaf.bitwidth)
        case "lookahead":
            out.op("W_LOOKAHEAD", result, *node.leaf)
        case "reg":
            following = Label()
            out.op("W_REG_RD", result, node.leaf.index, compute(out, node.args[0]), following)
            out.place(following)
        case "select":
            condition, a, b = node.args
            out.op("W_SELECT", result, compute(out, condition), compute_wide(out, a), compute_wide(out, b))
        case "~":
            out.op("W_NOT", result, compute_wide(out, node.args[0]))
        case "two_comp_mod":
            out.op("W_SEXT", result, compute_wide(out, node.args[0]), node.leaf)
        case "usat_cast" | "sat_cast":
            _exact(out, node.args[0])
            name = "W_USAT" if node.op == "usat_cast" else "W_SSAT"
            out.op(name, result, compute_wide(out, node.args[0]), node.leaf)
        case "<<" | ">>":
            value, by = node.args
            if node.op == ">>":
                _exact(out, value)
            if not by.fits_unsigned64:
                raise UnsupportedConstruct("a shift by a number of more than 64 bits", out.where)
            name = "W_SHL" if node.op == "<<" else "W_SHR"
            out.op(name, result, compute_wide(out, value), compute(out, by))
        case _:
            if node.op in DIVISION:
                for arg in node.args:
                    _exact(out, arg)
            name = "W_" + {**ARITHMETIC, **DIVISION}[node.op]
            out.op(name, result, compute_wide(out, node.args[0]), compute_wide(out, node.args[1]))
    return result


def _compare_wide(out: Code, node: Expr, result: int) -> None:
    for arg in node.args:
        _exact(out, arg)
    values = [compute_wide(out, arg) for arg in node.args]
    if node.op == "d2b":
        out.op("W_BOOL", result, values[0])
    elif node.op == "==":
        out.op("W_EQ", result, *values)
    elif node.op == "<":
        out.op("W_LT", result, *values)
    else:
        out.op("W_LT", result, values[1], values[0])
        out.op("LNOT", result, result)
