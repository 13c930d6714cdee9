# SPDX-License-Identifier: Apache-2.0
"""`railweave bench loss`."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from railweave.commands import common
from railweave.experiments import units
from railweave.experiments.errors import OptionError, ResultError
from railweave.help_texts import examples

if TYPE_CHECKING:
    from railweave.experiments.loss.run import Point

EPILOG = examples(
    "bench loss --chunks 20000",
    "bench loss --topology planes --losses 0,0.01 --plot loss.png",
)
TOPOLOGIES = ["planes", "leaf-spine:racks=2,hosts=4,spines=1"]
HEADER = f"{'topology':<24}{'loss':>8}{'time (s)':>10}{'%limit':>9}{'resent':>10}{'#wrong':>9}"
NOTES = (
    "loss: of packets, on every link in each direction; time: of all sums, one after the other",
    "%limit: throughput in percent of the physical limit of the links",
    "resent: contributions that were sent again",
)


def loss(
    topology: Annotated[
        list[str] | None,
        typer.Option(
            help="Topology as for bench all-reduce; the option may repeat. "
            f"Default: {' and '.join(TOPOLOGIES)}."
        ),
    ] = None,
    hosts: common.Hosts = 8,
    rate: common.RateOfTarget = None,
    losses: Annotated[
        str,
        typer.Option("--losses", help="Probabilities that a link loses a packet in each direction, a list."),
    ] = "0,0.001,0.01,0.05",
    duplicate: Annotated[float, typer.Option(help="Probability that a link duplicates a packet.")] = 0.01,
    reorder: Annotated[float, typer.Option(help="Probability that a link reorders a packet.")] = 0.01,
    chunks: Annotated[int, typer.Option(help="Smallest number of chunks per measurement.")] = 100_000,
    size: common.Size = "4M",
    seed: common.Seed = 1,
    plot: common.Plot = None,
    print_scenario: common.PrintScenario = False,
    out: common.Out = Path("out/loss"),
    json_file: common.JsonFile = None,
) -> None:
    """Measure in-network sums on links that lose packets.

    Every link also duplicates and reorders packets. The sums are of int32, so each element must be exact.
    """
    with common.one_line_errors(), common.run_folder(out) as folder:
        from railweave.experiments import tables  # noqa: PLC0415
        from railweave.experiments.allreduce.run import run_all  # noqa: PLC0415
        from railweave.experiments.figures import drawing  # noqa: PLC0415
        from railweave.experiments.loss import run as curve  # noqa: PLC0415

        work = curve.workload(chunks, units.parse_size(size))
        scenarios = [
            replace(each, seed=seed)
            for text in topology or TOPOLOGIES
            for each in curve.scenarios(
                common.scenario_of("", work, text, hosts, "ina", rate, "embedded"),
                _probabilities(losses),
                duplicate=duplicate,
                reorder=reorder,
            )
        ]
        if print_scenario:
            common.print_scenario(scenarios)
            return
        tell = common.teller(json_file)
        tell(f"{tables.notes(*NOTES)}\n{HEADER}")
        sweeps = common.run(
            run_all(
                scenarios,
                folder,
                common.phase,
                on_sweep=lambda sweep: tell(_line(curve.point(sweep))),
            ),
            folder,
        )
        points = [curve.point(sweep) for sweep in sweeps]
        if plot is not None:
            note = (
                f"{duplicate:.1%} duplicated, {reorder:.1%} reordered; links of "
                f"{scenarios[0].network.planes[0].rate_bps / 1e6:g} Mbit/s, emulated on one machine"
            )
            drawing.save(curve.draw(points), note, plot)
        result = curve.as_json(points)
        common.write_result(result, json_file, seed=seed)
        if not result["ok"]:
            raise ResultError(*common.WRONG_ELEMENTS)


def _probabilities(text: str) -> list[float]:
    try:
        return [float(part) for part in text.split(",")]
    except ValueError:
        raise OptionError(
            f"--losses {text!r}", "probabilities, such as 0,0.001,0.01", "correct --losses"
        ) from None


def _line(point: Point) -> str:
    use = "-" if point.utilisation is None else f"{point.utilisation:.1%}"
    return (
        f"{point.topology:<24}{point.loss:>8.1%}{point.time_s:>10.2f}{use:>9}{point.retransmissions:>10}"
        f"{point.wrong:>9}"
    )
