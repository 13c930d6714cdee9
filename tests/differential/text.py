# SPDX-License-Identifier: Apache-2.0
"""A generated P4 program as a tree of statements, so that a failing program can be made smaller."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field


@dataclass
class Statement:
    """A statement. With blocks, its text is `head { block } middle { block } … tail`, as for `if`."""

    head: str
    blocks: list[Block] = field(default_factory=list)
    middle: str = "else"
    tail: str = ""
    kept: bool = False  # the program makes no sense without it

    def lines(self, indent: int) -> Iterator[str]:
        """Yield the lines of the statement."""
        pad = "    " * indent
        if not self.blocks:
            yield f"{pad}{self.head}"
            return
        yield f"{pad}{self.head} {{"
        for number, block in enumerate(self.blocks):
            if number:
                yield f"{pad}}} {self.middle} {{"
            yield from block.lines(indent + 1)
        yield f"{pad}}} {self.tail}".rstrip()


@dataclass
class Block:
    """Statements one after the other."""

    statements: list[Statement] = field(default_factory=list)

    def lines(self, indent: int) -> Iterator[str]:
        """Yield the lines of the statements."""
        for statement in self.statements:
            yield from statement.lines(indent)

    def add(self, head: str, *, kept: bool = False) -> None:
        """Append a plain statement."""
        self.statements.append(Statement(head, kept=kept))


@dataclass
class Template:
    """A program as text with holes `@NAME@`, each on a separate line, and a block for each hole."""

    text: str
    blocks: dict[str, Block]

    def render(self) -> str:
        """Return the P4 source."""
        lines: list[str] = []
        for line in self.text.splitlines():
            name = line.strip().strip("@")
            if name in self.blocks and line.strip() == f"@{name}@":
                indent = (len(line) - len(line.lstrip())) // 4
                lines += self.blocks[name].lines(indent)
            else:
                lines.append(line)
        return "\n".join(lines) + "\n"

    def all_blocks(self) -> list[Block]:
        """Return every block, outer blocks first."""
        found: list[Block] = []
        waiting = list(self.blocks.values())
        while waiting:
            block = waiting.pop(0)
            found.append(block)
            waiting += [inner for statement in block.statements for inner in statement.blocks]
        return found
