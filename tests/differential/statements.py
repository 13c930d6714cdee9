# SPDX-License-Identifier: Apache-2.0
"""Random statements: assignments, branches, header operations, externs, forwarding and drops."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace

from differential.expressions import Scope, Variable
from differential.shape import PORTS, Shape

Block = list[str]  # of statements, in order

ALGORITHMS = ("crc32", "crc16", "csum16", "identity", "xor16")
TRIPS = 2  # resubmissions and recirculations of a packet, at most


def nested(head: str, *blocks: Block, middle: str = "else", tail: str = "") -> str:
    """Return a statement with blocks, such as `if`: `head { block } middle { block } tail`."""
    inner = f"\n}} {middle} {{\n".join("\n".join(block) for block in blocks)
    return f"{head} {{\n{inner}\n}} {tail}".rstrip()


@dataclass(frozen=True)
class Array:
    """A register array; `width` in bits, `size` a power of two."""

    name: str
    width: int
    size: int


@dataclass
class Writer:
    """Writes the statements of one control (`ingress` or `egress`)."""

    shape: Shape
    scope: Scope
    place: str
    registers: tuple[Array, ...] = ()
    counters: tuple[str, ...] = ()
    in_action: bool = False
    loops: int = field(default=0, init=False)

    def block(self, depth: int, most: int = 4) -> Block:
        """Return a block of a few statements."""
        return [self.statement(depth) for _ in range(self.scope.rng.randint(1, most))]

    def statement(self, depth: int) -> str:
        """Return one statement, with nested blocks up to `depth`."""
        rng, features = self.scope.rng, self.shape.features
        choices: list[tuple[float, Callable[[int], str]]] = [(6.0, self._assign), (1.0, self._slice)]
        if depth > 0:
            choices.append((2.5, self._if))
            if features.loops and not self.in_action and self.loops < 2:
                choices.append((1.0, self._for))
        choices.append((1.2, self._header))
        if self.registers:
            choices.append((2.0, self._register))
        if self.counters:
            choices.append((1.0, self._count))
        if features.hashes:
            choices.append((1.0, self._hash))
        choices.append((1.0, self._forward if self.place == "ingress" else self._drop))
        chosen = rng.choices([c for _, c in choices], [weight for weight, _ in choices])[0]
        return chosen(depth)

    # Values.

    def _assign(self, _depth: int) -> str:
        target = self.scope.target()
        value = self.scope.value(target.width, self.scope.rng.choice((1, 2, 3)), target.signed)
        return f"{target.name} = {value};"

    def _slice(self, _depth: int) -> str:
        target = self.scope.target(unsigned=True)
        low = self.scope.rng.randrange(target.width)
        high = self.scope.rng.randrange(low, target.width)
        return f"{target.name}[{high}:{low}] = {self.scope.value(high - low + 1, 2)};"

    # Branches.

    def _if(self, depth: int) -> str:
        blocks = [self.block(depth - 1, 3)]
        if self.scope.rng.random() < 0.5:
            blocks.append(self.block(depth - 1, 3))
        return nested(f"if ({self.scope.condition(1)})", *blocks)

    def _for(self, depth: int) -> str:
        """Return a loop. The packet decides the number of iterations, which is bounded."""
        self.loops += 1
        name = f"i{self.loops}"
        inner = Writer(self.shape, self.scope, self.place, self.registers, self.counters, self.in_action)
        inner.scope = self.scope.plus(Variable(name, 8, writable=False))
        inner.loops = 2
        limit = self.scope.rng.choice(("8w3", f"(s.ingress_port[7:0] & 3) + {self.scope.rng.randrange(3)}"))
        if self.place == "egress":
            limit = limit.replace("ingress", "egress")
        head = f"for (bit<8> {name} = 0; {name} < {limit}; {name} = {name} + 1)"
        return nested(head, inner.block(depth - 1, 2))

    # Headers.

    def _header(self, depth: int) -> str:
        rng, features = self.scope.rng, self.shape.features
        kinds: list[Callable[[int], str]] = [self._set_b]
        if features.stack:
            kinds += [self._move_stack, self._set_item]
        if features.union:
            kinds.append(self._set_union)
        if features.varbit:
            kinds.append(lambda _: "h.v.setInvalid();")
        return rng.choice(kinds)(depth)

    def _valid(self, header: str, members: tuple[Variable, ...]) -> str:
        """Make a header valid and set every field, as BMv2 would leave values of an earlier packet."""
        block = [f"{header}.setValid();"]
        others = tuple(v for v in self.scope.variables if not (v.guard or "").startswith(f"{header}."))
        scope = replace(self.scope, variables=others)
        for member in members:
            name = f"{header}.{member.name.split('.')[-1]}"
            block.append(f"{name} = {scope.value(member.width, 1)};")
        return nested(f"if (!{header}.isValid())", block)

    def _set_b(self, _depth: int) -> str:
        if self.scope.rng.random() < 0.4:
            return "h.b.setInvalid();"
        return self._valid("h.b", self.shape.second)

    def _set_item(self, _depth: int) -> str:
        header = f"h.s[{self.scope.rng.randrange(self.shape.stack_size)}]"
        return self._valid(header, (Variable("more", 8), *self.shape.item))

    def _move_stack(self, _depth: int) -> str:
        kind = self.scope.rng.choice(("push_front", "pop_front"))
        return f"h.s.{kind}({self.scope.rng.randint(1, self.shape.stack_size)});"

    def _set_union(self, _depth: int) -> str:
        if self.scope.rng.random() < 0.3:
            return f"h.u.{self.scope.rng.choice('xy')}.setInvalid();"
        if self.scope.rng.random() < 0.5:
            return self._valid("h.u.x", (Variable("tag", 8), Variable("x", 16)))
        return self._valid("h.u.y", (Variable("tag", 8), Variable("y", 40)))

    # Externs.

    def _register(self, _depth: int) -> str:
        rng = self.scope.rng
        array = rng.choice(self.registers)
        # Each of BMv2's egress threads serves some ports. So packets may share a cell only per port.
        index = f"(bit<32>)s.egress_port & {PORTS - 1}"
        if self.place == "ingress":
            within = rng.random() < 0.8
            index = f"(bit<32>)({self.scope.value(32, 1)}){f' & {array.size - 1}' if within else ''}"
        targets = [v for v in self.scope.variables if v.width == array.width and v.writable]
        targets = [v for v in targets if not v.signed and not v.guard]
        if targets and rng.random() < 0.5:
            return f"{array.name}.read({rng.choice(targets).name}, {index});"
        return f"{array.name}.write({index}, {self.scope.value(array.width, 1)});"

    def _count(self, _depth: int) -> str:
        return f"{self.scope.rng.choice(self.counters)}.count({self.scope.value(32, 1)} & 7);"

    def _hash(self, _depth: int) -> str:
        rng = self.scope.rng
        target = self.scope.target(unsigned=True)
        width = target.width
        if width > 64:
            return self._assign(0)
        of = [v for v in self.scope.variables if not v.guard and v.width % 8 == 0 and not v.signed]
        inputs = ", ".join(v.name for v in rng.sample(of, rng.randint(1, min(3, len(of)))))
        base = rng.randrange(1 << min(width, 8))
        most = rng.randrange(1, 1 << min(width, 32))
        call = f"HashAlgorithm.{rng.choice(ALGORITHMS)}, {width}w{base}, {{ {inputs} }}, {width}w{most}"
        return f"hash({target.name}, {call});"

    # Forwarding and drops.

    def _forward(self, _depth: int) -> str:
        rng, features = self.scope.rng, self.shape.features
        kinds = [f"s.egress_spec = (bit<9>)({self.scope.value(32, 1)} & {PORTS - 1});"] * 3
        if rng.random() < 0.1:
            return f"if ({self.scope.condition(1)}) {{ mark_to_drop(s); }}"
        if features.multicast:
            kinds += [f"s.mcast_grp = (bit<16>)({self.scope.leaf(8, False)} & 3);"] * 2
        if features.clone:
            session = f"(bit<32>)({self.scope.leaf(8, False)} & 3)"
            kinds += [f"clone_preserving_field_list(CloneType.I2E, {session}, 1);"] * 2
        if features.resubmit:
            return self._again("resubmit_preserving_field_list(1);")
        if features.truncate:
            kinds.append(f"truncate({rng.randrange(20, 80)});")
        return rng.choice(kinds)

    def _drop(self, depth: int) -> str:
        rng, features = self.scope.rng, self.shape.features
        if features.recirculate and rng.random() < 0.5:
            return self._again("recirculate_preserving_field_list(1);")
        if features.egress_clone and rng.random() < 0.5:
            session = f"(bit<32>)({self.scope.leaf(8, False)} & 3)"
            return self._again(f"clone_preserving_field_list(CloneType.E2E, {session}, 1);")
        if features.truncate and rng.random() < 0.5:
            return f"truncate({rng.randrange(20, 80)});"
        if rng.random() < 0.1:
            return f"if (h.a.kind == {rng.randrange(8)}) {{ mark_to_drop(s); }}"
        return self._assign(depth)

    def _again(self, call: str) -> str:
        """Return a call that sends the packet or a copy back, a bounded number of times."""
        condition = f"m.trips < {TRIPS} && {self.scope.condition(0)}"
        return nested(f"if ({condition})", ["m.trips = m.trips + 1;", call])
