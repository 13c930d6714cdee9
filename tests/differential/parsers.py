# SPDX-License-Identifier: Apache-2.0
"""A random parser. It selects optional headers by masks, ranges, sets, lookahead and flags."""

from __future__ import annotations

import random

from differential.expressions import Scope
from differential.shape import Shape


class ParserGenerator:
    """Writes the parser of a shape."""

    def __init__(self, shape: Shape, rng: random.Random) -> None:
        self.shape = shape
        self.rng = rng
        self.scope: Scope = shape.scope(rng, "parser")

    def text(self) -> str:
        """Return the whole parser as text."""
        features = self.shape.features
        states = ["at_b", "at_meta"]
        states += [f"at_{name}" for name in ("stack", "union", "varbit") if getattr(features, name)]
        head = "parser P(packet_in p, out H h, inout M m, inout standard_metadata_t s) {\n"
        if features.value_set:
            head += "    value_set<bit<8>>(4) vs;\n"
        body = "    state start {\n        p.extract(h.a);\n"
        if self.rng.random() < 0.3:
            error = self.rng.choice(("error.NoMatch", "error.Odd", "error.PacketTooShort"))
            body += f"        verify(h.a.sel != {self.rng.randrange(16)}, {error});\n"
        body += self._transition(states, exit_early=0.1) + "    }\n"
        for number, name in enumerate(states):
            body += getattr(self, f"_{name}")(states[number + 1 :])
        return f"error {{ Odd }}\n{head}{body}}}\n"

    # States.

    def _at_b(self, rest: list[str]) -> str:
        return f"    state at_b {{\n        p.extract(h.b);\n{self._transition(rest)}    }}\n"

    def _at_meta(self, rest: list[str]) -> str:
        lines = []
        for _ in range(self.rng.randint(1, 3)):
            target = self.scope.target()
            lines.append(f"{target.name} = {self.scope.value(target.width, 1, target.signed)};")
        width = self.rng.choice((1, 8, 13, 16, 32, 48))
        target = self.scope.target(unsigned=True)
        lines.append(f"{target.name} = (bit<{target.width}>)p.lookahead<bit<{width}>>();")
        if self.rng.random() < 0.3:
            lines.append(f"p.advance({8 * self.rng.randrange(3)});")
        text = "".join(f"        {line}\n" for line in lines)
        return f"    state at_meta {{\n{text}{self._transition(rest)}    }}\n"

    def _at_stack(self, rest: list[str]) -> str:
        more = self.rng.choice(("p.lookahead<bit<8>>()", "h.s.last.more"))
        return (
            "    state at_stack {\n        p.extract(h.s.next);\n"
            f"        transition select({more}) {{ 1 &&& 1: at_stack; default: stack_end; }}\n    }}\n"
            f"    state stack_end {{\n{self._transition(rest)}    }}\n"
        )

    def _at_union(self, rest: list[str]) -> str:
        after = self._transition(rest)
        return (
            "    state at_union {\n        transition select(p.lookahead<bit<8>>()) {\n"
            "            0: union_x; 1 .. 2: union_y; default: union_end;\n        }\n    }\n"
            "    state union_x {\n        p.extract(h.u.x);\n        transition union_end;\n    }\n"
            "    state union_y {\n        p.extract(h.u.y);\n        transition union_end;\n    }\n"
            f"    state union_end {{\n{after}    }}\n"
        )

    def _at_varbit(self, rest: list[str]) -> str:
        size = self.rng.choice(("(bit<32>)p.lookahead<bit<8>>()", "(bit<32>)(p.lookahead<bit<8>>() & 7)"))
        return (
            f"    state at_varbit {{\n        p.extract(h.v, {size} << 3);\n{self._transition(rest)}    }}\n"
        )

    # Transitions.

    def _transition(self, following: list[str], exit_early: float = 0.3) -> str:
        if not following:
            return "        transition accept;\n"
        default = following[0] if self.rng.random() > exit_early else "accept"
        kind = self.rng.random()
        if kind < 0.25:
            return f"        transition {default};\n"
        key, cases = self._one_key() if kind < 0.7 else self._two_keys()
        targets = [*following, "accept"] if self.rng.random() < 0.9 else [*following, "reject"]
        rows = "".join(f"            {case}: {self.rng.choice(targets)};\n" for case in cases)
        # BMv2's P4Runtime cannot fill value sets: they stay empty.
        if self.shape.features.value_set and "," not in key and self.rng.random() < 0.5:
            rows = f"            vs: {self.rng.choice(targets)};\n{rows}"
        return f"        transition select({key}) {{\n{rows}            default: {default};\n        }}\n"

    def _one_key(self) -> tuple[str, list[str]]:
        key = self.rng.choice(("h.a.kind", "h.a.sel", "p.lookahead<bit<8>>()"))
        return key, [self._case() for _ in range(self.rng.randint(1, 4))]

    def _two_keys(self) -> tuple[str, list[str]]:
        wide = self.rng.choice(self.shape.first)
        key = f"h.a.kind, {wide.name}"
        cases = []
        for _ in range(self.rng.randint(1, 3)):
            value, mask = self.rng.getrandbits(wide.width), 1 << self.rng.randrange(wide.width)
            cases.append(f"({self._case()}, {self.rng.choice(('_', f'{value} &&& {mask}', str(value)))})")
        return key, cases

    def _case(self) -> str:
        value, other = self.rng.randrange(8), self.rng.randrange(8)
        low, high = min(value, other), max(value, other)
        return self.rng.choice((str(value), f"{value} &&& {other}", f"{low} .. {high}"))
