# SPDX-License-Identifier: Apache-2.0
"""Instructions for statements."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from railweave.switch.lowering.actions import (
    Assign,
    Choice,
    Effect,
    Jump,
    RegisterRead,
    RegisterWrite,
    Statement,
)
from railweave.switch.lowering.code import Label, Operand
from railweave.switch.lowering.expr import Expr, mask
from railweave.switch.lowering.fields import Field, Register
from railweave.switch.lowering.notes import Noting

UNNOTED = {"LOG", "HDR_HIDE", "VL_COPY"}  # what a trace leaves out


@dataclass
class Emitter(Noting):
    """Appends instructions; one scope of temporaries per piece of code."""

    names: dict[str, list[str]] = field(default_factory=dict)  # of the objects of effects, by kind

    def store(self, member: Field, node: Expr) -> None:
        """field = value, truncated."""
        if member.width == 0:
            return
        if self.native_field(member):
            self.store_register(member, self.number(node), node.fits(0, mask(member.width)))
        else:
            self.op("W_ST", self.wide(node), self.layout.bit_position(member), member.width)

    def store_register(self, member: Field, value: Operand, fits: bool = False) -> None:
        """field = register, truncated (unless it fits)."""
        if member.width == 0:
            return
        if not self.native_field(member):
            wide = self.fresh_wide()
            self.limbs = max(self.limbs, member.width // 64 + 1)
            self.op("W_FROM_U", wide, value)
            self.op("W_ST", wide, self.layout.bit_position(member), member.width)
            return
        kind, offset, bits = self._bits(member)
        if kind in {"N32", "N64"} and member.width not in {32, 64} and not fits:
            masked = self.fresh()
            self.op("AND", masked, value, self.constant(mask(member.width)))
            value = masked
        self.op("ST_" + kind, value, offset, bits)

    def statement(self, statement: Statement, targets: dict[int, Label]) -> None:
        """One statement as it stands, and what a trace has to tell of it."""
        self._note_before(statement)
        self._emit(statement, targets)
        if isinstance(statement, Assign | RegisterRead | Effect) and statement.target is not None:
            self.note_field("set", statement.target)

    def _note_before(self, statement: Statement) -> None:
        if isinstance(statement, RegisterRead):
            self.note("register read", statement.array.name, [("index", statement.index)])
        elif isinstance(statement, RegisterWrite):
            value = self.graph.wrap(statement.value, statement.array.width, signed=False)
            self.note("register write", statement.array.name, [("index", statement.index), ("value", value)])
        elif isinstance(statement, Effect) and statement.kind not in UNNOTED:
            values = [(str(number), value) for number, value in enumerate(statement.values)]
            self.note("call", self._call_of(statement), values)

    def _call_of(self, effect: Effect) -> str:
        """What is done, and to what if that has a name."""
        objects = [item for item in effect.objects if isinstance(item, str)]
        if effect.kind in self.names:
            objects = [self.names[effect.kind][effect.objects[0]]]
        return " ".join([effect.kind.lower(), *objects])

    def _emit(self, statement: Statement, targets: dict[int, Label]) -> None:
        if isinstance(statement, Assign):
            self.store(statement.target, statement.value)
        elif isinstance(statement, RegisterRead):
            self._register_read(statement)
        elif isinstance(statement, RegisterWrite):
            self.store_cell(statement.array, statement.index, statement.value)
        elif isinstance(statement, Jump):
            target = targets[statement.target]
            if statement.condition is None:
                self.op("JMP", 0, target)
            else:
                self.branch(statement.condition, target, when=False)
        elif isinstance(statement, Choice):
            self._choice(statement)
        elif statement.kind == "LOG":
            self._log(statement)
        else:
            self._effect(statement)

    def _choice(self, choice: Choice) -> None:
        done = Label()
        for condition, body in choice.alternatives:
            following = Label()
            self.branch(condition, following, when=False)
            with self.apart():
                self.statements(list(body))
            self.op("JMP", 0, done)
            self.place(following)
        self.place(done)

    def _log(self, effect: Effect) -> None:
        quiet = Label()
        self.op("LOGGING", 0, quiet)
        for value in effect.values:
            if value.fits64:
                self.op("LOG_VALUE", self.number(value), int(not value.fits_unsigned64))
            else:
                self.op("W_LOG_VALUE", self.wide(value))
        self.op("LOG", 0, effect.objects[0])
        self.place(quiet)

    def statements(self, statements: list[Statement]) -> None:
        """Statements one after the other, as they stand."""
        targets = {s.target: Label() for s in statements if isinstance(s, Jump)}
        for position, statement in enumerate(statements):
            if position in targets:
                self.place(targets[position])
            self.scope()
            self.statement(statement, targets)
        if len(statements) in targets:
            self.place(targets[len(statements)])
        self.scope()

    def _register_read(self, statement: RegisterRead) -> None:
        skip = Label()
        index = self.number(statement.index)
        if statement.array.width <= 64 and self.native_field(statement.target):
            value = self.fresh()
            self.op("REG_RD", value, statement.array.index, index, skip)
            self.store_register(statement.target, value)
        else:
            wide = self.fresh_wide()
            self.limbs = max(self.limbs, statement.array.width // 64 + 1)
            self.op("W_REG_RD", wide, statement.array.index, index, skip)
            if self.native_field(statement.target):
                value = self.fresh()
                self.op("W_TO", value, wide)
                self.store_register(statement.target, value)
            else:
                self.op("W_ST", wide, self.layout.bit_position(statement.target), statement.target.width)
        self.place(skip)

    def store_cell(self, array: Register, index: Expr, value: Expr) -> None:
        """array[index] = value, truncated; nothing if the index is out of range."""
        if array.width <= 64:
            self.op("REG_WR", self.number(value), array.index, self.number(index))
        else:
            self.limbs = max(self.limbs, array.width // 64 + 1)
            copy = self.fresh_wide()  # the instruction truncates in place
            self.op("W_ZEXT", copy, self.wide(value), array.width)
            self.op("W_REG_WR", copy, array.index, self.number(index))

    def _effect(self, effect: Effect) -> None:
        objects = [self._object(effect.kind, item) for item in effect.objects]
        values = [self.number(value) for value in effect.values]
        if effect.kind == "ASSERT":
            self.op("ASSERT", *values, *objects)
            return
        if effect.target is None:
            self.op(effect.kind, 0, *objects, *values)
            return
        result = self.fresh()
        if effect.kind in {"METER", "RANDOM"}:  # which may leave the field as it is
            skip = Label()
            self.op(effect.kind, result, *objects, *values, skip)
            self.store_register(effect.target, result)
            self.place(skip)
        else:
            self.op(effect.kind, result, *objects, *values)
            self.store_register(effect.target, result)

    def _object(self, kind: str, item: Any) -> int:
        if kind.startswith("HDR_"):
            return self.headers.by_name[item].index
        if kind == "VL_COPY":
            return self.layout.variables[item]
        return int(item)
