# SPDX-License-Identifier: Apache-2.0
"""Tables for the terminal: any, and the accounts of rails."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from rich.box import SIMPLE_HEAD
from rich.table import Table
from rich.text import Text

from railweave.experiments.accounting import BYTE_CLASSES, RailAccount
from railweave.experiments.units import format_rate

LEAST_SHOWN = 500  # bytes: what rounds to 0.001 MB


def table(columns: Sequence[str], rows: Iterable[Sequence[str | Text]], left: int = 1, **style: Any) -> Table:
    """Return a table; what stands in its first `left` columns is words, the rest is numbers."""
    made = Table(pad_edge=False, **{"box": SIMPLE_HEAD, **style})
    for place, name in enumerate(columns):
        made.add_column(name, justify="left" if place < left else "right")
    for row in rows:
        made.add_row(*row)
    return made


def rail_table(rails: Sequence[RailAccount]) -> Table:
    """Return a row per rail: shares, goodput, and the counts that must agree; what was multicast, if any."""
    multicast = any(rail.multicast_bytes for rail in rails)
    extra = ("multicast", "fetched") if multicast else ()
    columns = ("share", "goodput", "agent sent", "interface sent", "resent", *extra, "P4 results", "agree")
    rows = [
        (
            rail.name,
            f"{rail.share:.1%}",
            format_rate(rail.goodput_bps),
            _megabytes(rail.agent_bytes),
            _megabytes(rail.interface_bytes),
            f"{rail.retransmissions:,}",
            *([_megabytes(rail.multicast_bytes), _megabytes(rail.fetched_bytes)] if multicast else ()),
            _results(rail),
            mark(rail.bytes_agree and rail.results_agree),
        )
        for rail in rails
    ]
    return table(("rail", *columns), rows)


def byte_table(rails: Sequence[RailAccount]) -> Table:
    """Return what the interfaces have sent, by class, in MB; other traffic has rows of its own."""
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
    return table(("MB sent", *columns), rows)


def _megabytes(count: int) -> str:
    return f"{count / 1e6:.3f} MB"


def _results(rail: RailAccount) -> str:
    if rail.switch_results is None:
        return "-"
    return f"{rail.switch_results:,}/{rail.expected_results:,}"


def mark(good: bool) -> Text:
    """Return yes or NO, in colour."""
    return Text("yes", "green") if good else Text("NO", "red")
