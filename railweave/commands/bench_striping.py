# SPDX-License-Identifier: Apache-2.0
"""`railweave bench striping`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from railweave import outputs
from railweave.commands import common
from railweave.experiments import units
from railweave.experiments.errors import OptionError, ResultError
from railweave.help_texts import examples

EPILOG = examples(
    "bench striping --parts sizes --plot striping.png",
    "bench striping --parts convergence,overhead --json -",
)
REGRET = "regret"  # the part without a network


def striping(
    parts: Annotated[
        str, typer.Option(help="Parts to measure, a list: sizes, thresholds, convergence, overhead, regret.")
    ] = "sizes,thresholds,convergence,overhead",
    hosts: common.Hosts = 4,
    threshold_hosts: Annotated[
        str, typer.Option(help="Numbers of hosts in the part thresholds, a list.")
    ] = "2,4,6",
    rate: Annotated[str, typer.Option(help="Link rate in bit/s of all planes: 100M.")] = "100M",
    sizes: common.Sizes = "4K:8M",
    iters: common.Iters = 20,
    plot: common.Plot = None,
    out: common.Out = Path("out/striping"),
    json_file: common.JsonFile = None,
) -> None:
    """Measure how calls are split over the rails.

    Each part ends with its claims and whether the measurement supports them.

    \b
    sizes        two equal rails, two unequal ones and three rails, compared
                 with each rail alone
    thresholds   pairs of rails of all kinds, by number of hosts, up to 0.1 s
                 per call
    convergence  the split of each call: from a cold start, and after a rail's
                 rate has changed
    overhead     calls of 1 KiB on two rails, compared with the best rail
    regret       the cost of learning, in virtual time and without a network

    --plot writes one file per part, except for regret.
    """
    with common.one_line_errors(), common.run_folder(out) as folder:
        from railweave.experiments import tables  # noqa: PLC0415
        from railweave.experiments.claims import range_text  # noqa: PLC0415
        from railweave.experiments.striping import regret, run  # noqa: PLC0415
        from railweave.experiments.striping.parts import PARTS, Options  # noqa: PLC0415

        chosen = common.names(parts)
        for part in chosen:
            if part not in (*PARTS, REGRET):
                raise OptionError(
                    f"part {part!r}", f"one of {', '.join((*PARTS, REGRET))}", "correct the name"
                )
            if plot is not None:
                outputs.check_new_file("--plot", run.file_of(plot, part))
        options = Options(
            hosts,
            common.counts("--threshold-hosts", threshold_hosts),
            units.parse_rate(rate),
            units.parse_sizes(sizes),
            iters,
        )
        options.check()
        measured = {name: part(options) for name, part in PARTS.items() if name in chosen}
        tell = common.teller(json_file)
        found = common.run(
            run.run(measured, folder, common.phase, lambda found: tell("\n".join(found.lines()))), folder
        )
        regrets = []
        for each in regret.run() if REGRET in chosen else ():
            regrets.append(each)
            tell(str(each))
        judged = run.verdicts(measured, found, regrets)
        rows = [
            (
                each.claim.text,
                f"{each.measured.value:.3g}" if each.measured else "-",
                range_text(each.claim.expected),
                tables.mark(run.holds(each)),
            )
            for each in judged
        ]
        titles = ("claim", "measured", "expected", "holds")
        common.console(json_file).print(tables.table(titles, rows, show_lines=True))
        if plot is not None:
            for path in run.draw(measured, found, plot):
                tell(f"drawing: {path}")
        result = run.as_json(found, judged, regrets)
        common.write_result(result, json_file)
        if not result["ok"]:
            raise ResultError(f"{result['wrong']} wrong elements", "0", f"read the logs in {folder}")
        if not all(run.holds(each) for each in judged):
            raise ResultError("a claim does not hold", "claims that hold", "see the table above")
