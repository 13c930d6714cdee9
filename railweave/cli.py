# SPDX-License-Identifier: Apache-2.0
"""The command `railweave`: a table of commands, each in a module that is imported on demand."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping, Sequence
from importlib import import_module
from typing import Annotated

import typer

# Name and summary of each command. Its module has a typer application `app`.
COMMANDS = (
    ("demo", "Train a model on Mininet hosts over three rails at once, and check it."),
    ("run", "Run a program of your own on Mininet hosts, over several rails."),
    ("bench", "Measure collectives: time, bandwidth, share per rail, % of the limit."),
    ("reproduce", "Measure the papers' figures again, and judge what they claim: one report."),
    ("why", "Show the trees of each job, which rails carry its calls, and why others do not."),
    ("plan", "Predict how a collective of some size would be split over the rails."),
    ("topo", "Draw a topology, or write it as a file."),
    ("doctor", "Check this machine: tools, kernel features, optional parts."),
    ("switch", "Run a P4 switch on network interfaces (daemon)."),
    ("shell", "Open p4runtime-shell on a switch."),
    ("controller", "Place jobs in the network (daemon)."),
)
DAEMONS = {"switch": "railweave.switch.cli", "controller": "railweave.controller.cli"}

EXAMPLES = """
Examples:

  railweave demo                                  train on four hosts over ina, tcp and rdma

  railweave run --hosts 4 -- python my.py         run your own program on the same hosts

  railweave bench all-reduce --sizes 1K:16M       sweep sizes over the same rails

  railweave topo planes --hosts 4 --out net.png   draw what these run on

  railweave doctor                                what this machine supports, and what is missing
"""


def main() -> None:
    """Run the command line."""
    os.environ.setdefault("GRPC_VERBOSITY", "NONE")  # commands report gRPC's errors in one line
    try:
        build(_wanted(sys.argv, os.environ))()
    except ImportError:
        from railweave import native_module  # noqa: PLC0415

        if problem := native_module.problem():
            sys.exit(f"railweave: {problem}; {native_module.REMEDY}")
        raise


def _wanted(arguments: Sequence[str], environment: Mapping[str, str]) -> str:
    """Return the name of the command, also if a shell asks for completions of a partial line."""
    if (
        "_RAILWEAVE_COMPLETE" in environment
    ):  # typer's protocol: COMP_WORDS in bash, the other in zsh and fish
        arguments = environment.get("COMP_WORDS", environment.get("_TYPER_COMPLETE_ARGS", "")).split()
    return arguments[1] if len(arguments) > 1 else ""


def build(wanted: str) -> typer.Typer:
    """Return the application. It imports only the command `wanted`, so that help is fast."""
    app = typer.Typer(
        name="railweave",
        no_args_is_help=True,
        rich_markup_mode=None,
        pretty_exceptions_enable=False,
        context_settings={"help_option_names": ["-h", "--help"]},
    )
    app.callback(epilog=EXAMPLES)(_root)
    for name, summary in COMMANDS:
        if name == wanted:
            module = import_module(DAEMONS.get(name, f"railweave.commands.{name}"))
            _mount(app, name, module.app, summary)
        else:
            app.command(name, help=summary)(_not_imported)
    return app


def _mount(app: typer.Typer, name: str, part: typer.Typer, summary: str) -> None:
    """Add a typer application to the command line: as a group, or as its single command."""
    if part.registered_callback is None:
        app.registered_commands += part.registered_commands
    else:
        app.add_typer(part, name=name, short_help=summary)


def _not_imported() -> None:
    """Represent a command in the list of commands, without importing it."""


def _version(wanted: bool) -> None:
    if wanted:
        from railweave import __version__  # noqa: PLC0415

        typer.echo(__version__)
        raise typer.Exit


def _root(
    version: Annotated[
        bool, typer.Option("--version", help="Print the version and exit.", is_eager=True, callback=_version)
    ] = False,
) -> None:
    """Multi-rail, in-network collectives with a P4 switch in the loop."""
