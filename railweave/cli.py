# SPDX-License-Identifier: Apache-2.0
"""The command `railweave`: a table of commands, each in a module that is imported on demand."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping, Sequence
from importlib import import_module
from typing import Annotated

import typer

from railweave.errors import INTERRUPTED, LACKING, explain
from railweave.help_texts import examples

# Name and summary of each command. Its module has a typer application `app`.
COMMANDS = (
    ("demo", "Train a model on Mininet hosts over three rails at once."),
    ("run", "Run your program on Mininet hosts over several rails."),
    ("bench", "Measure collectives, switches and the controller."),
    ("reproduce", "Measure the papers' figures again and judge their claims."),
    ("algorithm", "Make, compile and check in-network algorithms."),
    ("why", "Show the trees of each job and the rails of its calls."),
    ("plan", "Predict how a collective would be split over the rails."),
    ("topo", "Print or draw a topology, or write it to a file."),
    ("doctor", "Check this machine: tools, kernel features, packages."),
    ("switch", "Run a P4 switch on network interfaces, or inspect it."),
    ("shell", "Open p4runtime-shell on a switch."),
    ("controller", "Run the controller, which places jobs in the network."),
)
HELP_WIDTH = 100
INSTALL = "pip install 'railweave[lab,figures]'"  # every command's packages
DAEMONS = {"switch": "railweave.switch.cli", "controller": "railweave.controller.cli"}

EXAMPLES = examples(
    "demo                                    # train a model on four hosts",
    "run --hosts 4 -- python my.py           # run your program on such hosts",
    "bench all-reduce --sizes 1K:16M         # measure sizes on such rails",
    "topo planes --hosts 4 --save net.png    # draw their network",
    "doctor                                  # check this machine",
)


def main() -> None:
    """Run the command line."""
    os.environ.setdefault("GRPC_VERBOSITY", "NONE")  # commands report its errors in one line
    try:
        build(_wanted(sys.argv, os.environ))()
    except ImportError as error:
        from railweave import native_module  # noqa: PLC0415

        if problem := native_module.problem():
            print(f"railweave: {problem}; {native_module.REMEDY}", file=sys.stderr)
            sys.exit(LACKING)
        if isinstance(error, ModuleNotFoundError) and not str(error.name).startswith("railweave"):
            text = explain(f"no module {error.name}", "the packages of this command", INSTALL)
            print(f"railweave: {text}", file=sys.stderr)
            sys.exit(LACKING)
        raise
    except KeyboardInterrupt:  # while modules are imported
        sys.exit(INTERRUPTED)


def _wanted(arguments: Sequence[str], environment: Mapping[str, str]) -> str:
    """Return the name of the command, also if a shell asks for completions of a partial line."""
    # Typer's protocol: bash sets COMP_WORDS, zsh and fish the other variable.
    if "_RAILWEAVE_COMPLETE" in environment:
        arguments = environment.get("COMP_WORDS", environment.get("_TYPER_COMPLETE_ARGS", "")).split()
    return arguments[1] if len(arguments) > 1 else ""


def build(wanted: str) -> typer.Typer:
    """Return the application; import only the command `wanted`, so that help is fast."""
    app = typer.Typer(
        name="railweave",
        no_args_is_help=True,
        rich_markup_mode=None,
        pretty_exceptions_enable=False,
        context_settings={"help_option_names": ["-h", "--help"], "max_content_width": HELP_WIDTH},
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
    """Add a part: a group with its commands, or its only command."""
    if part.registered_callback is None:
        app.registered_commands += part.registered_commands
    else:
        app.add_typer(part, name=name, short_help=summary)


def _not_imported() -> None:
    """Represent a command in the list of commands."""


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
    """Run multi-rail, in-network collectives with a P4 switch in the loop."""
