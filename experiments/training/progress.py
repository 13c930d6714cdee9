# SPDX-License-Identifier: Apache-2.0
"""What one sees while the demo runs: a live table on a terminal, plain lines elsewhere."""

from __future__ import annotations

from collections.abc import Sequence
from types import TracebackType

from rich.console import Console, Group
from rich.live import Live
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table

from railweave.experiments.training.run import Step
from railweave.experiments.units import format_rate

PLAIN_LINES = 10  # for the whole training, where output is not a terminal


class TrainingProgress:
    """`with TrainingProgress(console, steps, rails) as progress`: give its methods to the run."""

    def __init__(self, console: Console, steps: int, rails: Sequence[str]) -> None:
        """Show `steps` steps over these rails."""
        self._console = console
        self._steps = steps
        self._rails = rails
        self._bar = Progress(
            TextColumn("{task.description}", "bold", markup=False),
            BarColumn(),
            MofNCompleteColumn(),
            TimeElapsedColumn(),
            console=console,
        )
        self._task = self._bar.add_task("", total=steps)
        self._live = Live(self._bar, console=console, refresh_per_second=8) if console.is_terminal else None

    def __enter__(self) -> TrainingProgress:
        """Start to draw."""
        if self._live is not None:
            self._live.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Leave the last state on the screen."""
        if self._live is not None:
            self._live.stop()

    def phase(self, text: str) -> None:
        """Say what is being done now."""
        if self._live is None:
            self._console.print(f"{text} …")
        else:
            self._bar.update(self._task, description=text)

    def step(self, step: Step) -> None:
        """Show a step that all ranks have taken."""
        if self._live is not None:
            self._bar.update(self._task, completed=step.number + 1)
            self._live.update(Group(self._table(step), self._bar))
        elif step.number == 0 or (step.number + 1) % max(self._steps // PLAIN_LINES, 1) == 0:
            self._console.print(self._line(step), soft_wrap=True)

    def _line(self, step: Step) -> str:
        rails = ", ".join(
            f"{rail} {step.shares[rail]:.0%} at {format_rate(step.goodput_bps[rail])}"
            for rail in self._rails
            if rail in step.shares
        )
        return (
            f"step {step.number + 1:4}/{self._steps}  loss {step.loss:.4f}  "
            f"compute {step.compute_s * 1e3:.0f} ms  allreduce {step.communicate_s * 1e3:.0f} ms  {rails}"
        )

    def _table(self, step: Step) -> Table:
        table = Table(box=None, pad_edge=False)
        for column in ("step", "loss", "compute", "allreduce", *self._rails):
            table.add_column(column, justify="right", min_width=9)
        table.add_row(
            str(step.number + 1),
            f"{step.loss:.4f}",
            f"{step.compute_s * 1e3:.0f} ms",
            f"{step.communicate_s * 1e3:.0f} ms",
            *(
                f"{step.shares.get(rail, 0):.0%}  {format_rate(step.goodput_bps.get(rail, 0))}"
                for rail in self._rails
            ),
        )
        return table
