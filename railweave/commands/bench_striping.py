# SPDX-License-Identifier: Apache-2.0
"""`railweave bench striping`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from railweave import outputs
from railweave.commands import common
from railweave.experiments import units
from railweave.experiments.errors import OptionError

EPILOG = (
    "Examples: railweave bench striping --parts sizes --plot striping.png · "
    "railweave bench striping --parts convergence,overhead --json -"
)


def striping(
    parts: Annotated[
        str, typer.Option(help="What to measure: sizes, thresholds, convergence, overhead, regret.")
    ] = "sizes,thresholds,convergence,overhead",
    hosts: common.Hosts = 4,
    threshold_hosts: Annotated[
        str, typer.Option(help="Numbers of hosts for the part `thresholds`.")
    ] = "2,4,6",
    rate: Annotated[str, typer.Option(help="Rate of every link.")] = "100M",
    sizes: common.Sizes = "4K:8M",
    iters: common.Iters = 20,
    plot: common.Plot = None,
    out: common.Out = Path("out/striping"),
    json_file: common.JsonFile = None,
) -> None:
    """Measure striping: time and split by size, calls until the split converges, overhead.

    sizes: two rails, two of unequal rates, and three, against each alone. thresholds: pairs of rails of all
    kinds, by number of hosts, at sizes that take a link up to 0.1 s. convergence: the split call by call,
    from a cold start and after a rail's rate has changed. overhead: 1 KiB on two rails against the best
    one. regret: what learning costs, in virtual time, without a network. --plot writes one file per part,
    but for regret.
    """
    with common.one_line_errors(), common.run_folder(out) as folder:
        from railweave.experiments.striping import plot as drawing  # noqa: PLC0415
        from railweave.experiments.striping import regret, report, run  # noqa: PLC0415

        chosen = common.names(parts)
        if plot is not None:
            for part in chosen:
                outputs.check_new_file("--plot", drawing.file_of(plot, part))
        cases = run.cases(
            chosen,
            hosts,
            common.counts("--threshold-hosts", threshold_hosts),
            units.parse_rate(rate),
            units.parse_sizes(sizes),
            iters,
        )
        tell = common.teller(json_file)
        found = common.run(
            run.run(cases, folder, common.phase, lambda found: tell("\n".join(report.lines(found)))),
            folder,
        )
        regrets = []
        for each in regret.run() if "regret" in chosen else ():
            regrets.append(each)
            tell(str(each))
        for claim in [*report.claims(found), *report.regret_claims(regrets)]:
            verdict = "yes" if claim.ok else "NO"
            tell(f"{verdict:<4}{claim.claim} ({claim.case}): {claim.value:.3g}, wanted {claim.wanted}")
        if plot is not None:
            for path in drawing.draw(found, plot):
                tell(f"drawn: {path}")
        result = report.as_json(found, regrets)
        common.write_result(result, json_file)
        if not result["ok"]:
            raise OptionError(f"{result['wrong']} wrong elements", "0", f"read the logs in {folder}")
