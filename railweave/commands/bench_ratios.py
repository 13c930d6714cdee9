# SPDX-License-Identifier: Apache-2.0
"""`railweave bench ratios`."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated

import typer

from railweave.commands import common
from railweave.experiments.errors import OptionError, ResultError
from railweave.help_texts import examples

EPILOG = examples(
    "bench ratios",
    "bench ratios --update     # writes benchmarks/baseline.toml",
)


def ratios(
    update: Annotated[
        bool, typer.Option("--update", help="Write the measured ratios as the new baseline.")
    ] = False,
    out: common.Out = Path("out/ratios"),
) -> None:
    """Compare a fixed set of ratios with the baseline.

    Absolute times depend on the machine, so the baseline (benchmarks/baseline.toml) has ratios: to the
    physical limit, to Gloo and to BMv2. Exits with 1 if a ratio is worse than the baseline by more than its
    tolerance.
    """
    with common.one_line_errors(), common.run_folder(out) as folder:
        from railweave.benchmarks import ratios as work  # noqa: PLC0415
        from railweave.experiments import tables  # noqa: PLC0415

        if update and not os.access(work.BASELINE, os.W_OK):
            raise OptionError(
                f"--update: {work.BASELINE}", "a file that can be written", "run this as the file's owner"
            )
        found, failed = common.run(work.run(folder, common.phase), folder)
        rows = []
        for each in found:
            now = each.measured
            numbers = (f"{now.value:.3g}", f"{now.low:.3g} to {now.high:.3g}") if now else ("-", "-")
            change = f" {now.value / each.value - 1:+.0%}" if now else ""
            baseline = f"{each.value:.3g} ± {each.tolerance:.0%}"
            rows.append((each.text, baseline, *numbers, each.verdict + change))
        console = common.console(None)
        console.print(tables.table(("ratio", "baseline", "now", "interval", "change"), rows))
        for missing in dict.fromkeys(each.missing for each in found if each.missing):
            console.print(f"not measured: {missing}", soft_wrap=True)
        for line in failed:
            typer.echo(f"railweave: {line}", err=True)
        if failed:
            raise ResultError(
                "runs failed, so the ratios do not count", "runs without errors", f"read the logs in {folder}"
            )
        if update:
            work.BASELINE.write_text(work.updated(work.BASELINE.read_text(), found))
        elif any(each.verdict == work.WORSE for each in found):
            raise ResultError(
                "a ratio is worse than its baseline",
                "a difference within its tolerance",
                "see the table above; measure again on an idle machine",
            )
