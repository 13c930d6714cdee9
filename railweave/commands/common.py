# SPDX-License-Identifier: Apache-2.0
"""What all commands share: options, one-line errors, handling of Ctrl-C and SIGTERM, JSON files."""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import errno
import json
import logging
import signal
import sys
from collections.abc import Callable, Coroutine, Iterator, Mapping, Sequence
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TypeVar

import typer
import typer.core

from railweave import native_module, outputs
from railweave.errors import explain
from railweave.experiments import provenance, units
from railweave.experiments.errors import OptionError
from railweave.hosts.errors import RailweaveError
from railweave.outputs import OutputError
from railweave.p4src.artifacts import JUMBO_LANES, JUMBO_MTU
from railweave.topologies import model
from railweave.topologies.errors import LabError, TopologyError
from railweave.topologies.planes import DEFAULT_RATE_BPS

if TYPE_CHECKING:
    from rich.console import Console

    from railweave.experiments.scenario import Scenario, Workload
    from railweave.topologies.lab.options import LabOptions

T = TypeVar("T")
DEFAULT_MTU = model.DEFAULT_MTU

Topology = Annotated[
    str,
    typer.Option(
        help="planes, leaf-spine:racks=2,hosts=4,spines=2, racks:racks=4,hosts=4,ina=2,spine=plain, "
        "fat-tree:k=4 (or pods=, edges=, aggs=, cores=, hosts=), or a topology file."
    ),
]
Hosts = Annotated[int, typer.Option(help="Number of hosts of the topology planes.")]
Rails = Annotated[
    str, typer.Option(help="Rails, one plane each: ina, tcp, rdma, netreduce; a kind may repeat.")
]
Rates = Annotated[
    str | None,
    typer.Option(
        "--rate",
        help="Rate of every link, or one per plane: 100M, 1G,100M,0. 0: unshaped. Default: 100M, and 8M for "
        "ina planes on BMv2, which is not built for speed.",
    ),
]
Loss = Annotated[
    str,
    typer.Option(help="Probability that a switch drops a datagram, on ina and rdma planes: 0.01, ina=0.02."),
]
Mtu = Annotated[
    int,
    typer.Option(
        help=f"MTU of every link. From {JUMBO_MTU} on, ina rails have {JUMBO_LANES} lanes a packet, else 256."
    ),
]
Shares = Annotated[
    str | None,
    typer.Option(
        help="Share of each rail: 0.5,0.3,0.2 or ina=1,tcp=1. Default: by the rails' measured cost."
    ),
]
Size = Annotated[str, typer.Option(help="Bytes of each tensor: 64K, 4M (binary).")]
Sizes = Annotated[str, typer.Option(help="4M is one size, 1K,4M a list, 1K:16M powers of two (binary).")]
DType = Annotated[str, typer.Option(help="float32 or int32.")]
Iters = Annotated[int, typer.Option(help="Timed calls of each size.")]
Warmup = Annotated[int, typer.Option(help="Untimed calls before them, at least.")]
Trials = Annotated[int, typer.Option(help="Trials per fault, each at a random instant.")]
Seed = Annotated[int, typer.Option(help="Seed of all random choices.")]
Baseline = Annotated[
    str, typer.Option(help="Others to measure on the same hosts: gloo, ring, mptcp, openmpi.")
]
Out = Annotated[Path, typer.Option(help="Each run makes a folder in it, for logs.")]
SwitchTarget = Annotated[
    str, typer.Option("--switch", help="The switch that runs the P4 program: embedded or bmv2.")
]


def _port(text: str) -> int:
    if not text.isdecimal() or int(text) > 65535:
        raise typer.BadParameter(
            explain(f"{text!r}", "a port from 0 to 65535 or nothing", "correct the port")
        )
    return int(text)


Live = Annotated[
    int | None,
    typer.Option(
        help="Show the run on a page of this machine, on a free port or this one.",
        metavar="[PORT]",
        parser=_port,
        show_default=False,
    ),
]
ClusterFile = Annotated[
    Path | None,
    typer.Option("--cluster", envvar="RAILWEAVE_CLUSTER", help="Cluster file (YAML; docs/howto/cluster.md)."),
]


def _new_json(context: typer.Context, path: Path | None) -> Path | None:
    if not context.resilient_parsing:
        with one_line_errors():
            outputs.check_new_file("--json", path)
    return path


def _new_plot(context: typer.Context, path: Path | None) -> Path | None:
    if not context.resilient_parsing:
        with one_line_errors():
            if path is not None and path.suffix not in PLOT_FORMATS:
                raise OptionError(
                    f"--plot {path}", f"a name that ends in {', '.join(PLOT_FORMATS)}", "rename the file"
                )
            outputs.check_new_file("--plot", path)
    return path


# Both are checked before a command begins, so that no measurement is lost at its end.
JsonFile = Annotated[
    Path | None,
    typer.Option(
        "--json", help="Write the result as JSON, to a new file.", dir_okay=False, callback=_new_json
    ),
]
Plot = Annotated[
    Path | None,
    typer.Option(help="Draw the curve to a new file: PNG, SVG or PDF.", dir_okay=False, callback=_new_plot),
]
PLOT_FORMATS = (".png", ".svg", ".pdf")

# Measured: the demo with 4 hosts on one ina rail of 256 lanes, 2 processors, load average 21. Of 31,000
# contributions, sent again: 66 at 4 Mbit/s, 73 at 8, 126 at 12: the goodput fell from 5.4 to 3.4 Mbit/s
BMV2_RATE_BPS = 8_000_000
PLAIN_WIDTH = 110  # of tables in files and pipes
WRONG = ("wrong elements", "none", "see the column #wrong, and the logs of this run")
UNWRITABLE = (errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.EACCES)
INTERRUPTED, TERMINATED = 130, 143  # what shells report


class LiveCommand(typer.core.TyperCommand):
    """A command whose `--live` needs no port: typer knows no options with a value that can be left out."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Give `--live` port 0, a free one, unless a word follows."""
        return super().parse_args(ctx, with_live_port(args))


def with_live_port(arguments: Sequence[str]) -> list[str]:
    """Return arguments in which `--live` has a port, 0 where none follows.

    >>> with_live_port(["--live", "--steps", "9", "--", "my.py", "--live"])
    ['--live=0', '--steps', '9', '--', 'my.py', '--live']
    """
    end = arguments.index("--") if "--" in arguments else len(arguments)
    options = [
        "--live=0" if option == "--live" and following.startswith("-") else option
        for option, following in pairwise([*arguments[:end], "-"])
    ]
    return [*options, *arguments[end:]]


@contextlib.contextmanager
def one_line_errors() -> Iterator[None]:
    """Turn errors that users can correct into one line on stderr and exit status 1."""
    try:
        yield
    except (OptionError, OutputError, TopologyError, LabError, RailweaveError) as error:
        typer.echo(f"railweave: {error}", err=True)
        raise typer.Exit(1) from error
    except OSError as error:
        if error.errno not in UNWRITABLE:
            raise
        typer.echo(f"railweave: {error.filename or 'a result'}: {error.strerror}", err=True)
        raise typer.Exit(1) from error


def phase(text: str) -> None:
    """Report on stderr what a run is doing."""
    typer.echo(f"# {text}", err=True)


def names(text: str) -> list[str]:
    """Return the names of a list, such as `gloo` or `ina,tcp`."""
    return [name.strip() for name in text.split(",") if name.strip()]


def counts(option: str, text: str) -> list[int]:
    """Return different numbers of hosts, in order."""
    try:
        return sorted({int(part) for part in text.split(",")})
    except ValueError:
        raise OptionError(f"{option} {text!r}", "numbers, such as 2,4,8", f"correct {option}") from None


@contextlib.contextmanager
def run_folder(out: Path) -> Iterator[Path]:
    """Make the folder of this run in `out`; at the end say where it is, or remove it if it is empty.

    OutputError if it cannot be made.
    """
    with outputs.run_folder(out) as folder:
        try:
            yield folder
        finally:
            if any(folder.iterdir()):
                phase(f"folder of this run: {folder}")


def run(work: Coroutine[Any, Any, T], out: Path) -> T:
    """Run `work` to completion; Ctrl-C and SIGTERM cancel it, so that it cleans up, and end the command.

    OptionError names what a full disk has no room for: the file, or else the folder `out`.
    """
    if problem := native_module.problem():  # else the ranks would be the first to miss it
        work.close()
        raise OptionError(problem, "a native module that loads", native_module.REMEDY)
    logging.basicConfig(format="railweave: %(message)s", level=logging.WARNING)
    terminated = False

    async def cancellable() -> T:
        task = asyncio.current_task()
        assert task is not None  # noqa: S101 - within one

        def terminate() -> None:
            nonlocal terminated
            terminated = True
            task.cancel()

        asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, terminate)
        return await work

    try:
        return asyncio.run(cancellable())
    except KeyboardInterrupt:
        typer.echo("railweave: interrupted; the network has been removed", err=True)
        raise typer.Exit(INTERRUPTED) from None
    except asyncio.CancelledError:
        if not terminated:
            raise
        typer.echo("railweave: terminated; the network has been removed", err=True)
        raise typer.Exit(TERMINATED) from None
    except OSError as error:
        if error.errno not in (errno.ENOSPC, errno.EDQUOT):
            raise
        full = error.filename or out  # a failed write does not name its file
        raise OptionError(
            f"{full}: {error.strerror}; finished parts are kept",
            "room on the disk",
            "make room, and run the command again",
        ) from error


def rates_of(rate: str | None, rails: Sequence[str], target: str) -> list[int]:
    """Return the given rates, limited to what the planes' switches can carry.

    BMv2 drops packets that arrive faster than it can process them, so its planes are limited to that rate,
    with a note on stderr.
    """
    on_bmv2 = [kind == "ina" and target == "bmv2" for kind in rails]
    if rate is None:
        return [BMV2_RATE_BPS if slow else DEFAULT_RATE_BPS for slow in on_bmv2]
    asked = units.parse_rates(rate)
    if len(asked) == 1:
        asked *= len(rails)
    if len(asked) != len(rails):  # the topology reports the error
        return asked
    return [_for_bmv2(bps) if slow else bps for bps, slow in zip(asked, on_bmv2, strict=True)]


def _for_bmv2(asked: int) -> int:
    if 0 < asked <= BMV2_RATE_BPS:
        return asked
    given = units.format_rate(BMV2_RATE_BPS)
    wish = units.format_rate(asked) if asked else "no limit"
    typer.echo(f"railweave: an ina plane on BMv2 is limited to {given} ({wish} was requested)", err=True)
    return BMV2_RATE_BPS


def topology_of(
    text: str, hosts: int, rails: str, rate: str | None, target: str, mtu: int = DEFAULT_MTU
) -> model.Topology:
    """Return the topology that the options describe."""
    from railweave.topologies.named import named  # noqa: PLC0415

    kinds = units.parse_rails(rails)
    return named(text, hosts=hosts, rails=kinds, rates=rates_of(rate, kinds, target), mtu=mtu)


def scenario_of(
    name: str,
    work: Workload,
    topology: str,
    hosts: int,
    rails: str,
    rate: str | None,
    target: str,
    loss: str = "0",
    mtu: int = DEFAULT_MTU,
) -> Scenario:
    """Return the scenario that the options describe, in one round and without contenders."""
    from railweave.experiments.scenario import Scenario  # noqa: PLC0415

    kinds = units.parse_rails(rails)
    rates = tuple(rates_of(rate, kinds, target))
    scenario = Scenario(
        name, (), work, topology, hosts, tuple(kinds), rates, mtu, switch=target, repetitions=1
    )
    check_target(target, scenario.network)
    return dataclasses.replace(scenario, loss=loss_of(loss, scenario.network))


def lab_of(topology: model.Topology, out: Path, target: str, loss: str = "0", **others: Any) -> LabOptions:
    """Return how to bring a topology to life, with what the options say of switches and losses."""
    from railweave.topologies.lab.options import LabOptions  # noqa: PLC0415

    return LabOptions(out, check_target(target, topology), loss_of(loss, topology), **others)


def loss_of(text: str, topology: model.Topology) -> dict[str, float]:
    """Return the probabilities of loss by plane."""
    return units.parse_loss(text, [(plane.name, plane.kind) for plane in topology.planes])


def check_target(name: str, topology: model.Topology) -> str:
    """Return the switch target's name; OptionError if it is unknown or cannot run here."""
    from railweave.switch.targets import TARGETS  # noqa: PLC0415

    if name not in TARGETS:
        raise OptionError(f"switch target {name!r}", f"one of {', '.join(TARGETS)}", "correct --switch")
    needed = any(switch.p4runtime for plane in topology.planes for switch in plane.switches)
    if needed and (missing := TARGETS[name].missing()):
        raise OptionError(
            f"switch target {name!r} cannot run here: {missing}",
            "all of its parts",
            "install them, or choose another target",
        )
    return name


def console(json_file: Path | None) -> Console:
    """Return the console for text: stdout, or stderr if JSON goes to stdout.

    It prints text as it is: names, paths and errors may contain square brackets. `rich.text.Text` has styles.
    """
    from rich.console import Console  # noqa: PLC0415 - help needs none

    chosen = Console(stderr=str(json_file) == "-", highlight=False, markup=False, emoji=False)
    if not chosen.is_terminal:
        chosen.width = PLAIN_WIDTH
    return chosen


def teller(json_file: Path | None) -> Callable[[str], None]:
    """Return what prints lines as they come: to stdout, or to stderr if JSON goes to stdout."""
    return partial(typer.echo, err=str(json_file) == "-")


def write_result(
    value: Mapping[str, Any],
    path: Path | None,
    *,
    seed: int | None = None,
    versions: Mapping[str, str] | None = None,
) -> None:
    """Write a measurement, which has `ok`, and its provenance to a file, or to stdout for `-`.

    `seed`: of its random choices, if any. `versions`: of other software that was measured.
    """
    head = {
        "ok": value["ok"],
        "command": provenance.command(),
        "versions": {**provenance.versions(), **(versions or {})},
        "seed": seed,
    }
    write_json(head | dict(value), path)


def write_json(value: Mapping[str, Any], path: Path | None) -> None:
    """Write a value to a file, or to stdout for `-`."""
    if path is None:
        return
    text = json.dumps(value, indent=2) + "\n"
    if str(path) == "-":
        sys.stdout.write(text)
        return
    outputs.write_new_file("--json", path, text)
