# SPDX-License-Identifier: Apache-2.0
"""Tables for the terminal: of any values, and of the accounts of rails."""

from __future__ import annotations

import textwrap
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table
from rich.text import Text

from railweave.experiments.accounting import BYTE_CLASSES, RULE, RailAccount

NOTE_WIDTH = 98  # columns
LEAST_SHOWN = 500  # bytes; fewer round to 0.000 MB

SPEED = (  # columns that tables of collectives share
    ("mean", "us", 9),
    ("median", "us", 9),
    ("p99", "us", 9),
    ("algbw", "Mbit/s", 8),
    ("busbw", "Mbit/s", 8),
    ("%limit", "", 7),
    ("#wrong", "", 7),
)


class Lines:
    """A table that can be printed row by row. A row has numbers, then words."""

    def __init__(self, columns: Sequence[tuple[str, str, int]], words: str) -> None:
        """Take the title, unit and width of each column of numbers, and the title of the words."""
        titles, units, self._widths = zip(*columns, strict=True)
        self.titles = f"{self.row(titles, words)}\n{self.row(units)}"

    def row(self, numbers: Sequence[str], words: str = "") -> str:
        """Return a row."""
        cells = (number.rjust(width) for number, width in zip(numbers, self._widths, strict=True))
        return f"{''.join(cells)}  {words}".rstrip()


def microseconds(seconds: float) -> str:
    """Return a time in microseconds: with a decimal up to 0.1 s."""
    return f"{seconds * 1e6:.{1 if seconds < 0.1 else 0}f}"


def notes(*texts: str) -> str:
    """Return notes on a table, one per line, wrapped."""
    return "\n".join(
        textwrap.fill(text, NOTE_WIDTH, initial_indent="# ", subsequent_indent="#   ") for text in texts
    )


def shares(of_rails: Mapping[str, float]) -> str:
    """Return the shares of rails in percent: `ina 67, tcp 33`."""
    return ", ".join(f"{rail} {100 * share:.0f}" for rail, share in of_rails.items())


def table(columns: Sequence[str], rows: Iterable[Sequence[str | Text]], left: int = 1, **style: Any) -> Table:
    """Return a table with words in its first `left` columns, and numbers in the others."""
    made = Table(pad_edge=False, title_justify="left", **{"box": SIMPLE_HEAD, **style})
    for place, name in enumerate(columns):
        made.add_column(name, justify="left" if place < left else "right")
    for row in rows:
        made.add_row(*row)
    return made


def rail_table(rails: Sequence[RailAccount]) -> Table:
    """Return a row per rail: share, goodput, and the counts that must agree."""
    multicast = any(rail.multicast_bytes for rail in rails)
    extra = ("multicast\nMB", "fetched\nMB") if multicast else ()
    columns = ("share", "Mbit/s", "agent\nMB", "interface\nMB", "resent", *extra, "P4\nresults", "agree")
    rows = [
        (
            rail.name,
            f"{rail.share:.1%}",
            f"{rail.goodput_bps / 1e6:.2f}",
            _megabytes(rail.agent_bytes),
            _megabytes(rail.interface_bytes),
            f"{rail.retransmissions:,}",
            *([_megabytes(rail.multicast_bytes), _megabytes(rail.fetched_bytes)] if multicast else ()),
            _results(rail),
            mark(rail.bytes_agree and rail.results_agree),
        )
        for rail in rails
    ]
    return table(("rail", *columns), rows, box=None)


def byte_table(rails: Sequence[RailAccount]) -> Table:
    """Return the MB that the interfaces have sent, by class; each kind of other traffic has its own row."""
    lost = any(rail.never_left_bytes for rail in rails)
    shown = any(count >= LEAST_SHOWN for rail in rails for count in rail.others.values())
    columns = [
        *BYTE_CLASSES,
        *(["others"] if shown else []),
        "unexplained",
        *(["never left"] if lost else []),
    ]
    rows = []
    for rail in rails:
        counts = {**rail.sent, "others": sum(rail.others.values()), "unexplained": rail.unexplained_bytes}
        counts["never left"] = rail.never_left_bytes
        rows.append((rail.name, *(f"{counts[column] / 1e6:.3f}" for column in columns)))
        for what, count in rail.others.items():
            if count >= LEAST_SHOWN:
                cells = (f"{count / 1e6:.3f}" if column == "others" else "" for column in columns)
                rows.append((f"  {what}", *cells))
    return table(("MB sent", *columns), rows, box=None, padding=(0, 1, 0, 0))


def print_rails(rails: Sequence[RailAccount], console: Console) -> None:
    """Print the accounts of rails, and when their counts agree."""
    console.print(rail_table(rails))
    console.print()
    console.print(byte_table(rails))
    console.print()
    console.print(RULE, style="dim")


def _megabytes(count: int) -> str:
    return f"{count / 1e6:.3f}"


def _results(rail: RailAccount) -> str:
    if rail.switch_results is None:
        return "-"
    return f"{rail.switch_results:,}/{rail.expected_results:,}"


def mark(good: bool) -> Text:
    """Return yes or NO, in colour."""
    return Text("yes", "green") if good else Text("NO", "red")
