# SPDX-License-Identifier: Apache-2.0
"""The progress and results of the demo: lines, tables, JSON, a trace and a picture."""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

from railweave.experiments import timeline
from railweave.experiments.tables import mark, print_rails
from railweave.experiments.training.reference import MOVED_RUNS, SAFETY
from railweave.experiments.training.run import DemoResult, Step
from railweave.experiments.units import format_bytes, format_rate

OF_RAIL = (
    *("name", "agent_bytes", "sent", "interface_bytes", "failures", "goodput_bps", "share"),
    "retransmissions",
)


def step_line(step: Step, steps: int, rails: Sequence[str]) -> str:
    """Return a line on a step that all ranks have taken."""
    parts = ", ".join(
        f"{rail} {step.shares[rail]:.0%} at {format_rate(step.goodput_bps[rail])}"
        for rail in rails
        if rail in step.shares
    )
    return (
        f"step {step.number + 1:4}/{steps}  loss {step.loss:.4f}  compute {step.compute_s * 1e3:.0f} ms  "
        f"allreduce {step.communicate_s * 1e3:.0f} ms  {parts}"
    )


def opening_lines(step: Step, began: float, since: float) -> list[str]:
    """Return lines on the time until the first step has ended.

    `began` is the start of this command. `since` is the start of the total time.
    """
    now, step_s = time.time(), step.compute_s + step.communicate_s
    return [
        f"==> lab: {now - step_s - began:.1f} s",
        f"==> first training step: {step_s:.1f} s",
        f"==> total until the first training step: {now - since:.1f} s",
    ]


def as_json(result: DemoResult) -> dict[str, Any]:
    """Return the demo's result as JSON values."""
    return {
        "ok": result.ok,
        "hosts": len(result.options.topology.hosts),
        "switch": result.options.lab.switch_target,
        "steps": len(result.steps),
        "accuracy": result.accuracy,
        "max_abs_diff": result.max_abs_diff,
        "rails": [{name: getattr(rail, name) for name in OF_RAIL} for rail in result.rails],
        "switch_results": result.switch_results,
        # Not in the schema:
        "max_abs_diff_bound": result.reference.bound,
        "accuracy_one_process": result.reference.accuracy,
        "ranks_identical": result.ranks_identical,
        "counts_agree": result.counts_agree,
        "training_s": result.seconds,
        "allreduce_s": sum(step.communicate_s for step in result.steps),
    }


def write_files(result: DemoResult) -> dict[str, Path]:
    """Write the Chrome trace and the picture. Return their paths by description."""
    rails = [rail.name for rail in result.rails]
    title = f"{len(result.options.topology.hosts)} hosts train over {', '.join(rails)}"
    out, rows = result.options.lab.out, ["compute", *rails]
    return timeline.write_files(result.spans, rows, out, title, result.events, unit="step")


def print_report(result: DemoResult, console: Console) -> None:
    """Print the result."""
    reference = result.reference
    communicate = sum(step.communicate_s for step in result.steps)
    print_rails(result.rails, console)
    console.print()
    facts = Table(box=None, show_header=False, pad_edge=False)
    facts.add_column(style="bold")
    facts.add_column()
    facts.add_row(
        "loss", f"{result.steps[0].loss:.4f} in the first step, {result.steps[-1].loss:.4f} in the last"
    )
    facts.add_row("held-out accuracy", f"{result.accuracy:.4f} (one process: {reference.accuracy:.4f})")
    facts.add_row(
        "greatest difference",
        Text.assemble(
            f"{result.max_abs_diff:.2e} in any parameter, compared with the same training in one process; "
            f"within the bound of {reference.bound:.2e}: ",
            mark(result.within_bound),
        ),
    )
    facts.add_row(
        "",
        Text(
            f"An element of an averaged gradient differs by at most {reference.largest_operation_bound:.1e} "
            f"(proven). In {MOVED_RUNS} runs of {len(result.steps)} steps, every element was changed by that"
            f" much, up or down at random. They ended at most {reference.moved:.1e} away. The bound is "
            f"{SAFETY} times this.",
            "dim",
        ),
    )
    facts.add_row(
        "ranks", Text.assemble("all ended with identical parameters: ", mark(result.ranks_identical))
    )
    facts.add_row(
        "time",
        f"{result.seconds:.1f} s for {len(result.steps)} steps, of which {communicate:.1f} s in allreduce",
    )
    for plane, packets in result.switch_counters.items():
        shown = ", ".join(f"{name} {count:,}" for name, count in sorted(packets.items()) if count)
        facts.add_row(f"P4 counters, {plane}", shown)
    console.print(facts)


def summary(result: DemoResult) -> str:
    """Return one line that names what failed, or confirms that nothing did."""
    wrong = []
    if not result.ranks_identical:
        wrong.append("ranks ended with different parameters")
    if not result.within_bound:
        wrong.append(
            f"parameters differ by {result.max_abs_diff:.2e}, more than {result.reference.bound:.2e}"
        )
    wrong += [f"bytes of rail {rail.name} do not agree" for rail in result.rails if not rail.bytes_agree]
    wrong += [
        f"switch results of rail {rail.name} do not agree" for rail in result.rails if not rail.results_agree
    ]
    if wrong:
        return "failed: " + "; ".join(wrong)
    total = sum(rail.payload_bytes for rail in result.rails)
    return f"all counts agree; {format_bytes(total)} of gradients were averaged on each host"
