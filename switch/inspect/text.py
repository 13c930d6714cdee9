# SPDX-License-Identifier: Apache-2.0
"""Tables for the terminal, made of the values that were read from a switch."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import datetime
from typing import Any

from rich.console import Console
from rich.table import Table

from railweave.switch.inspect.cells import RATES, runs

Row = dict[str, Any]
_PER_LINE = 8  # cells of a register


LOSSES = {
    "rx_missed": "arrived while the kernel's receive buffer was full",
    "rx_refused": "arrived as super-packets that the switch cannot cut, as in GRE, or were too long",
    "tx_dropped": "could not leave: the port's queue was full, or its interface down",
    "tx_refused": "could not leave: the kernel refused them, such as longer than the MTU",
}
"""Why a port loses packets, by its counters."""


def print_log(console: Console, rows: Iterable[Row]) -> None:
    """Print messages of the program, each behind its time of day."""
    for row in rows:
        time = datetime.fromtimestamp(row["time_ns"] / 1e9).isoformat(timespec="milliseconds")
        console.print(f"{time.partition('T')[2]} {row['text']}", soft_wrap=True)


def print_stats(console: Console, result: Row) -> None:
    """Print ports, the program's packets, and packets per action."""
    if result["ports"] is None:
        console.print("port counters: only the embedded switch has them")
    else:
        _print_ports(console, result["ports"])
    if result["impairments"]:
        console.print()
        _print(console, list(result["impairments"][0]), map(dict.values, result["impairments"]), left=2)
    pipeline = result["pipeline"]
    if pipeline is not None and pipeline["program"]:
        parts = [f"{name} {pipeline[name]:,}" for name in ("received", "emitted", "dropped", "aborted")]
        console.print(f"\nprogram {pipeline['program']}, {pipeline['execution']}: " + ", ".join(parts))
        for line in pipeline["scalar"]:
            console.print(f"not fused: {line}", soft_wrap=True)
    if result["actions"]:
        console.print()
        names = [name.replace("_per_s", "/s") for name in result["actions"][0]]
        _print(console, names, map(dict.values, result["actions"]), left=2)


def _print_ports(console: Console, ports: Sequence[Row]) -> None:
    columns = ["port", "interface", "", "rx packets", "tx packets", "rx bytes", "tx bytes", "lost"]
    rows = []
    for port in ports:
        row = [port["port"], port["interface"], "up" if port["up"] else "down"]
        row += [port[name] for name in ("rx_packets", "tx_packets", "rx_bytes", "tx_bytes")]
        row.append(sum(port[name] for name in LOSSES))
        if "rx_packets_per_s" in port:
            row += [port[f"{way}_packets_per_s"] for way in ("rx", "tx")]
            row += [f"{port[f'{way}_bytes_per_s'] * 8e-6:,.2f}" for way in ("rx", "tx")]
        rows.append(row)
    columns += ["rx/s", "tx/s", "rx Mbit/s", "tx Mbit/s"] if rows and len(rows[0]) > len(columns) else []
    _print(console, columns, rows, left=3)
    for port in ports:
        for counter, reason in LOSSES.items():
            if port[counter]:
                console.print(f"port {port['port']} lost {port[counter]:,}: {reason}", soft_wrap=True)


def print_tables(console: Console, tables: Sequence[Row], *, entries: bool) -> None:
    """Print an overview, or every entry."""
    overview = [
        [t["name"], len(t["entries"]), t["size"], (t["default"] or {}).get("call", "-")] for t in tables
    ]
    if not entries:
        _print(console, ["table", "entries", "size", "default"], overview, left=1)
        return
    for table, (name, count, size, default) in zip(tables, overview, strict=True):
        console.print(f"{name}: {count} of {size} entries, default {default}")
        if table["entries"]:
            _print_entries(console, table["entries"])
        console.print()


def _print_entries(console: Console, entries: Sequence[Row]) -> None:
    optional = ("priority", "packets", "bytes", "idle_s", "meter")
    extra = [name for name in optional if any(name in entry for entry in entries)]
    fields = list(entries[0]["text"])
    rows = [
        [*entry["text"].values(), _does(entry), *(_extra(entry, name) for name in extra)] for entry in entries
    ]
    _print(console, [*fields, "action", *extra], rows, left=len(fields) + 1)


def _does(entry: Row) -> str:
    if "action_set" in entry:
        return " | ".join(f"{one['weight']}x {one['call']}" for one in entry["action_set"])
    for kind in ("member", "group"):
        if kind in entry:
            return f"{kind} {entry[kind]}"
    return str(entry.get("call", "-"))


def _extra(entry: Row, name: str) -> str | int:
    value: Any = entry.get(name, "-")
    if isinstance(value, dict):
        return "/".join(str(value[rate]) for rate in RATES)
    return f"{value:,.3f}" if isinstance(value, float) else value


def print_declared(console: Console, rows: Sequence[Row]) -> None:
    """Print arrays without their values."""
    _print(console, ["name", "size", "cells"], map(dict.values, rows), left=1)


def print_cells(console: Console, kind: str, result: Row) -> None:
    """Print the values of a register, the non-zero cells of a counter, or the configured ones of a meter."""
    title = f"{result['name']}: {result['size']:,} cells"
    if kind == "register":
        console.print(f"{title} of {result['cells']}")
        _print_values(console, result["values"], result["first"])
        return
    cells = [(index, cell) for index, cell in enumerate(result["values"], result["first"]) if cell]
    if kind == "counter":
        cells = [(index, cell) for index, cell in cells if any(cell.values())]
        console.print(f"{title}, {len(cells)} of those read are non-zero")
    else:
        console.print(f"{title} ({result['cells']}), {len(cells)} configured")
    if cells:
        rows = [[str(index), *cell.values()] for index, cell in cells]
        _print(console, ["index", *cells[0][1]], rows, left=0)


def _print_values(console: Console, values: Sequence[int], first: int) -> None:
    """Print values, eight to a line; a long run of equal values takes one line."""
    pending: list[int] = []
    start = first

    def flush() -> None:
        for at in range(0, len(pending), _PER_LINE):
            console.print(f"{start + at:>8}  {'  '.join(map(_cell, pending[at : at + _PER_LINE]))}")
        pending.clear()

    for begin, end, value in runs(values, first):
        if end - begin >= _PER_LINE:
            flush()
            console.print(f"{begin:>8}  … {end}: all {_cell(value)}")
            start = end + 1
        else:
            if not pending:
                start = begin
            pending += [value] * (end - begin + 1)
    flush()


def _cell(value: int) -> str:
    return f"{value:#x}" if value > 9 else str(value)


def print_groups(console: Console, result: Row) -> None:
    """Print multicast groups, clone sessions, and members and groups of action profiles."""
    for title, key, number in (
        ("multicast group", "multicast", "group"),
        ("clone session", "clone_sessions", "session"),
    ):
        groups = result[key]
        if groups is None:
            console.print(f"{title}s: this switch's P4Runtime server reads none")
            continue
        console.print(f"{title}s: {len(groups)}")
        if groups:
            rows = [
                [str(group[number]), ", ".join(f"{r['port']}:{r['instance']}" for r in group["replicas"])]
                for group in groups
            ]
            _print(console, [title, "port:instance"], rows, left=2)
    for profile in result["profiles"] or ():
        members, groups = profile["members"], profile["groups"]
        console.print(f"action profile {profile['name']}: {len(members)} members, {len(groups)} groups")
        for member in members:
            console.print(f"  member {member['member']}: {member.get('call', '-')}")
        for group in groups:
            parts = ", ".join(f"{part['weight']}x {part['member']}" for part in group["members"])
            console.print(f"  group {group['group']}: {parts}")


def _print(console: Console, columns: Sequence[str], rows: Iterable[Iterable[Any]], *, left: int) -> None:
    table = Table(box=None, pad_edge=False)
    for place, column in enumerate(columns):
        table.add_column(column, justify="left" if place < left else "right", overflow="fold")
    for row in rows:
        table.add_row(*(_text(value) for value in row))
    console.print(table)


def _text(value: Any) -> str:
    if isinstance(value, float):
        return f"{value:,.0f}"
    return f"{value:,}" if isinstance(value, int) else str(value)
