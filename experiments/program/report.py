# SPDX-License-Identifier: Apache-2.0
"""The result of a run: tables for the terminal, JSON, a trace and a picture."""

from __future__ import annotations

import shlex
import textwrap
from dataclasses import asdict
from pathlib import Path
from typing import Any

from rich.console import Console

from railweave.experiments import timeline
from railweave.experiments.program.run import ProgramResult
from railweave.experiments.tables import print_rails


def as_json(result: ProgramResult) -> dict[str, Any]:
    """Return the result as JSON values."""
    return {
        "ok": result.ok,
        "hosts": len(result.options.topology.hosts),
        "program": list(result.options.command),
        "joined": list(result.collected.joined),
        "rows": [asdict(rail) for rail in result.collected.rails],
        "switch_counters": result.switch_counters,
    }


def print_report(result: ProgramResult, console: Console) -> None:
    """Print the rails' counts, or a note that no rank has called railweave.init."""
    if not result.collected.rails:
        console.print("no rank has called railweave.init, so there are no counts to compare")
        return
    print_rails(result.collected.rails, console)
    wrong = [rail.name for rail in result.collected.rails if not rail.bytes_agree]
    verdict = f"failed: bytes of {', '.join(wrong)} do not agree" if wrong else "all counts agree"
    console.print(verdict, style="bold")


def write_files(result: ProgramResult) -> dict[str, Path]:
    """Write the Chrome trace and the picture if there are slices. Return their paths by description."""
    if not result.collected.spans:
        return {}
    rails = [rail.name for rail in result.collected.rails]
    events = [(at - result.collected.start_s, text) for at, text in result.events]
    program = textwrap.shorten(shlex.join(result.options.command), 60, placeholder=" …")
    title = f"{len(result.options.topology.hosts)} hosts run {program}"
    return timeline.write_files(result.collected.spans, rails, result.options.lab.out, title, events)
