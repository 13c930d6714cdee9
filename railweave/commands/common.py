# SPDX-License-Identifier: Apache-2.0
"""The common part of all commands: options, progress, one-line errors, signals, JSON files."""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import logging
import shutil
import signal
import sys
import time
from collections.abc import Callable, Coroutine, Iterator, Mapping, Sequence
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TypeVar

import typer
import typer.core

from railweave import exit_status, help_texts, native_module, outputs
from railweave.errors import INTERRUPTED, TERMINATED, Unavailable, explain
from railweave.experiments import provenance, units
from railweave.experiments.errors import OptionError
from railweave.p4src.artifacts import JUMBO_LANES, JUMBO_MTU
from railweave.topologies import model
from railweave.topologies.planes import DEFAULT_RATE_BPS

if TYPE_CHECKING:
    from railweave.experiments.scenario import Scenario, Workload
    from railweave.topologies.lab.options import LabOptions

T = TypeVar("T")
DEFAULT_MTU = model.DEFAULT_MTU
one_line_errors = exit_status.one_line_errors

Topology = Annotated[
    str,
    typer.Option(
        help="Topology by name and parameters: planes; leaf-spine:racks=2,hosts=4,spines=2; "
        "racks:racks=4,hosts=4,ina=2,spine=plain; fat-tree:k=4 (or pods=, edges=, aggs=, cores=, hosts=); "
        "or the path of a topology file."
    ),
]
Hosts = Annotated[int, typer.Option(help="Number of hosts in the topology planes.")]
RAILS = (
    "Rails, each on its own plane: ina, tcp, rdma or netreduce, or the name or folder of an in-network "
    "algorithm, such as switchml or ./mine; a kind may repeat."
)
Rails = Annotated[str, typer.Option(help=RAILS)]
RATE = "Link rate in bit/s, one for all planes or one per plane: 100M, or 1G,100M,0; 0 means unshaped."
Rate = Annotated[str, typer.Option(help=RATE)]
RateOfTarget = Annotated[
    str | None,
    typer.Option(help=f"{RATE} Default: 100M, but 8M for ina planes on BMv2, which is slow."),
]
Loss = Annotated[
    str,
    typer.Option(
        help="Probability that a switch drops a datagram, on all ina and rdma planes (0.01) or on one plane "
        "(ina=0.02)."
    ),
]
Mtu = Annotated[
    int,
    typer.Option(
        help=f"MTU of every link in bytes; from {JUMBO_MTU} bytes, a packet of an ina rail has "
        f"{JUMBO_LANES} lanes instead of 256."
    ),
]
Shares = Annotated[
    str | None,
    typer.Option(
        help="Fixed share of each rail: 0.5,0.3,0.2 or ina=1,tcp=1. Default: railweave splits each call by "
        "measured cost."
    ),
]
Size = Annotated[str, typer.Option(help="Size of each tensor in bytes, with binary suffixes: 64K or 4M.")]
Sizes = Annotated[
    str,
    typer.Option(
        help="Tensor sizes in bytes, with binary suffixes: one (4M), a list (1K,4M) or powers of two "
        "(1K:16M)."
    ),
]
DType = Annotated[str, typer.Option(help="Element type: float32 or int32.")]
Iters = Annotated[int, typer.Option(help="Number of timed calls per size.")]
Warmup = Annotated[int, typer.Option(help="Least number of untimed calls before the timed ones, per size.")]
Seconds = Annotated[float, typer.Option(help="Duration of the load in seconds.")]
REPEAT = typer.Option(help="Number of repetitions of the whole measurement.", min=1)
Repeat = Annotated[int, REPEAT]
Seed = Annotated[int, typer.Option(help="Seed of all random choices.", min=0)]
Compare = Annotated[
    str,
    typer.Option(
        help="Others to measure as well, a list: of collectives gloo, ring, mptcp, openmpi and in-network "
        "algorithms (railweave algorithm list), of switches echo and bmv2. Default: none.",
        show_default=False,
    ),
]
PrintScenario = Annotated[
    bool,
    typer.Option(
        "--print-scenario",
        help="Do not run, but print the scenario of these options as TOML for bench --scenario.",
    ),
]
Out = Annotated[Path, typer.Option(help="Folder in which each run makes a subfolder for its files.")]
SwitchTarget = Annotated[
    str, typer.Option("--switch", help="Switch that runs the P4 program: embedded or bmv2.")
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
        help="Serve a live page of the run on this TCP port; without PORT, on a free one. Default: no page.",
        metavar="[PORT]",
        parser=_port,
        show_default=False,
    ),
]
ClusterFile = Annotated[
    Path | None,
    typer.Option(
        "--cluster",
        envvar="RAILWEAVE_CLUSTER",
        help="Path of the cluster file (YAML). Default: no cluster file.",
        show_default=False,
    ),
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
        "--json",
        help=help_texts.JSON,
        metavar="FILE",
        dir_okay=False,
        callback=_new_json,
    ),
]
Plot = Annotated[
    Path | None,
    typer.Option(
        help="Draw the result to a new PNG, SVG or PDF file. Default: no drawing.",
        metavar="FILE",
        dir_okay=False,
        callback=_new_plot,
    ),
]
PLOT_FORMATS = (".png", ".svg", ".pdf")

# Above this rate BMv2 loses packets. On two busy cores, with 4 hosts and one ina rail, goodput fell from 5.4
# to 3.4 Mbit/s between 8 and 12 Mbit/s. Resends rose from 73 to 126 of 31,000 contributions.
BMV2_RATE_BPS = 8_000_000
WRONG_ELEMENTS = ("wrong elements", "none", "see the column #wrong, and the logs of this run")
ERASE_LINE = "\r\x1b[2K"
OFTEN_S = 5.0  # between frequent progress texts if stderr is no terminal


class LiveCommand(typer.core.TyperCommand):
    """A command whose `--live` needs no port. typer has no options with an optional value."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Give `--live` port 0 (a free port) unless a word follows."""
        return super().parse_args(ctx, with_live_port(args))


def with_live_port(arguments: Sequence[str]) -> list[str]:
    """Return arguments in which `--live` has a port: 0 if no port follows.

    >>> with_live_port(["--live", "--steps", "9", "--", "my.py", "--live"])
    ['--live=0', '--steps', '9', '--', 'my.py', '--live']
    """
    end = arguments.index("--") if "--" in arguments else len(arguments)
    options = [
        "--live=0" if option == "--live" and following.startswith("-") else option
        for option, following in pairwise([*arguments[:end], "-"])
    ]
    return [*options, *arguments[end:]]


class Progress:
    """The line on stderr with the progress of a run. On a terminal, each text replaces the previous one."""

    def __init__(self) -> None:
        """Show nothing."""
        self._shown = ""
        self._shown_s = -OFTEN_S

    def show(self, text: str, *, often: bool = False) -> None:
        """Show a text. Without a terminal, show texts that come `often` at most every OFTEN_S seconds."""
        if sys.stderr.isatty():
            self._shown = text[: shutil.get_terminal_size().columns - 1]
            sys.stderr.write(f"{ERASE_LINE}{self._shown}")
            sys.stderr.flush()
        elif not often or time.monotonic() - self._shown_s >= OFTEN_S:
            self._shown_s = time.monotonic()
            typer.echo(text, err=True)

    def clear(self) -> None:
        """Erase the line."""
        if self._shown:
            sys.stderr.write(ERASE_LINE)
            sys.stderr.flush()
            self._shown = ""

    def echo(self, text: str, *, err: bool) -> None:
        """Print a line that stays, above the progress."""
        shown = self._shown
        self.clear()
        typer.echo(text, err=err)
        if shown:
            self.show(shown)


progress = Progress()
phase = progress.show
note = partial(progress.echo, err=True)


class _Warnings(logging.Handler):
    """Prints warnings of the packages that do the work."""

    def emit(self, record: logging.LogRecord) -> None:
        note(self.format(record))


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
    """Make the folder of this run in `out`. At the end, name the folder on stderr, or remove an empty folder.

    Raises OutputError if the folder cannot be made.
    """
    with outputs.run_folder(out) as folder:
        try:
            yield folder
        finally:
            if any(folder.iterdir()):
                note(f"folder of this run: {folder}")


def run(work: Coroutine[Any, Any, T], out: Path) -> T:
    """Run `work` to completion. Ctrl-C and SIGTERM cancel `work`, so that it cleans up, and end the command.

    If a disk is full, Unavailable names the file, or else the folder `out`.
    """
    if problem := native_module.problem():  # report it here, before the ranks fail
        work.close()
        raise Unavailable(problem, native_module.EXPECTED, native_module.REMEDY)
    logging.basicConfig(format="railweave: %(message)s", level=logging.WARNING, handlers=[_Warnings()])
    terminated = False

    async def cancellable() -> T:
        task = asyncio.current_task()
        assert task is not None  # noqa: S101 - within one

        def terminate() -> None:
            nonlocal terminated
            terminated = True
            task.cancel()

        asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, terminate)
        try:
            return await work
        finally:
            progress.clear()

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
        if error.errno not in outputs.NO_ROOM:
            raise
        full = error.filename or out  # a failed write does not name its file
        raise Unavailable(
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


def print_scenario(scenarios: Sequence[Scenario]) -> None:
    """Print the only scenario; OptionError if the options describe several."""
    if len(scenarios) > 1:
        raise OptionError(
            f"--print-scenario: the options describe {len(scenarios)} scenarios",
            "options that describe one",
            "give one value where the options have a list",
        )
    typer.echo(scenarios[0].as_toml(), nl=False)


def lab_of(topology: model.Topology, out: Path, target: str, loss: str = "0", **others: Any) -> LabOptions:
    """Return the options of a lab, from the command's options for switches and losses."""
    from railweave.topologies.lab.options import LabOptions  # noqa: PLC0415

    return LabOptions(out, check_target(target, topology), loss_of(loss, topology), **others)


def loss_of(text: str, topology: model.Topology) -> dict[str, float]:
    """Return the probabilities of loss by plane."""
    return units.parse_loss(text, [(plane.name, plane.kind) for plane in topology.planes])


def check_target(name: str, topology: model.Topology) -> str:
    """Return the switch target's name. OptionError if it is unknown, Unavailable if it cannot run here."""
    from railweave.switch.targets import TARGETS  # noqa: PLC0415

    if name not in TARGETS:
        raise OptionError(f"switch target {name!r}", f"one of {', '.join(TARGETS)}", "correct --switch")
    needed = any(switch.p4runtime for plane in topology.planes for switch in plane.switches)
    if needed and (missing := TARGETS[name].missing()):
        raise Unavailable(
            f"switch target {name!r} cannot run here: {missing}",
            "all of its parts",
            "install them, or choose another target",
        )
    return name


console, write_json = outputs.console, outputs.write_json


def teller(json_file: Path | None) -> Callable[[str], None]:
    """Return a function that prints a line: to stdout, or to stderr if JSON goes to stdout."""
    return partial(progress.echo, err=str(json_file) == "-")


def write_result(
    value: Mapping[str, Any],
    path: Path | None,
    *,
    seed: int | None = None,
    versions: Mapping[str, str] | None = None,
) -> None:
    """Write a measurement (a mapping with `ok`) and its provenance to a file, or to stdout for `-`.

    `seed` is the seed of the measurement's random choices. `versions` are those of other measured software.
    """
    head = {
        "ok": value["ok"],
        "command": provenance.command(),
        "versions": {**provenance.versions(), **(versions or {})},
        "seed": seed,
    }
    write_json(head | dict(value), path)
