# SPDX-License-Identifier: Apache-2.0
"""`railweave switch stats|tables|registers|…`: show the state of a running switch, as text and as JSON."""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable, Iterator
from inspect import Parameter, Signature, signature
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, get_type_hints

import typer

from railweave import help_texts, outputs
from railweave.errors import WRONG
from railweave.exit_status import one_line_errors
from railweave.switch.errors import SwitchError
from railweave.switch.options import MAX_DEVICE_ID, Tls

if TYPE_CHECKING:
    from rich.console import Console

    from railweave.switch.inspect.client import SwitchClient

_PLAIN_WIDTH = 160  # columns of tables in files and pipes, which may have many match fields

JsonFile = Annotated[
    Path | None, typer.Option("--json", help=help_texts.JSON, metavar="FILE", dir_okay=False)
]
Grpc = Annotated[str, typer.Option(help="HOST:PORT of the switch's P4Runtime server.")]
DeviceId = Annotated[
    int, typer.Option(min=0, max=MAX_DEVICE_ID, help="Device id of the switch in P4Runtime.")
]
TlsCa = Annotated[
    Path | None,
    typer.Option(help="File of the CA that signed the switch's certificate (PEM). Default: none."),
]
TlsCert = Annotated[Path | None, typer.Option(help="File of the client's certificate (PEM). Default: none.")]
TlsKey = Annotated[Path | None, typer.Option(help="File of the client's key (PEM). Default: none.")]
ArrayName = Annotated[str | None, typer.Argument(help="Name of the array. Default: a list of all arrays.")]
Indexes = Annotated[
    str | None, typer.Argument(metavar="[INDEX|FIRST:END]", help="Cells to show. Default: all.")
]

COMMANDS: list[tuple[Callable[..., None], str]] = []  # with the examples of their help


@contextlib.contextmanager
def _switch(
    *,
    grpc: Grpc = "127.0.0.1:9559",
    device_id: DeviceId = 1,
    tls_ca: TlsCa = None,
    tls_cert: TlsCert = None,
    tls_key: TlsKey = None,
) -> Iterator[SwitchClient]:
    """Connect to a switch; an error ends the command with one line on stderr."""
    # Imported only now: gRPC is slow to import, and --help needs none.
    from railweave.switch.inspect.client import SwitchClient  # noqa: PLC0415

    with one_line_errors(), SwitchClient(grpc, device_id, tls_ca, Tls.of(tls_cert, tls_key, None)) as client:
        yield client


def _parameters(function: Callable[..., Any]) -> list[Parameter]:
    hints = get_type_hints(function, None, {"SwitchClient": object}, include_extras=True)
    return [p.replace(annotation=hints[name]) for name, p in signature(function).parameters.items()]


def _command(example: str, without: str = "") -> Callable[[Callable[..., None]], None]:
    """Add a command with the options of `_switch`, except `without`, in place of its client parameter."""

    def add(command: Callable[..., None]) -> None:
        connection = [parameter for parameter in _parameters(_switch) if parameter.name != without]
        parameters = [*_parameters(command)[1:], *connection]
        parameters.sort(key=lambda parameter: parameter.name == "json_file")

        @functools.wraps(command)
        def run(**given: Any) -> None:
            with one_line_errors():
                outputs.check_new_file("--json", given.get("json_file"))
            with _switch(**{option.name: given.pop(option.name) for option in connection}) as client:
                command(client, **given)

        run.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
        run.__signature__ = Signature(parameters)  # type: ignore[attr-defined]
        COMMANDS.append((run, help_texts.examples(f"switch {example}")))

    return add


@_command("stats --interval 5")
def stats(
    client: SwitchClient,
    *,
    interval: Annotated[
        float,
        typer.Option(
            min=0, max=3600, help="Time in seconds over which rates are measured; 0 means no rates."
        ),
    ] = 1.0,
    json_file: JsonFile = None,
) -> None:
    """Show counters of ports, tables and actions.

    The ports also have rates, and the tables and actions packets per second.
    """
    from railweave.switch.inspect import text  # noqa: PLC0415
    from railweave.switch.inspect.stats import stats as read  # noqa: PLC0415

    result = read(client, interval)
    _show(result, json_file, lambda console: text.print_stats(console, result))


@_command("tables routes --json routes.json")
def tables(
    client: SwitchClient,
    *,
    table: Annotated[
        str | None, typer.Argument(help="Name of the table. Default: a summary of all tables.")
    ] = None,
    entries: Annotated[bool, typer.Option("--entries", help="Show the entries of all tables.")] = False,
    json_file: JsonFile = None,
) -> None:
    """Show tables and their entries.

    An entry has match fields, an action, and counters, a meter and an idle time where the program has them.
    """
    from railweave.switch.inspect import tables as reader  # noqa: PLC0415
    from railweave.switch.inspect import text  # noqa: PLC0415

    rows = reader.tables(client, table)
    shown = entries or table is not None
    _show({"tables": rows}, json_file, lambda console: text.print_tables(console, rows, entries=shown))


@_command("registers seen 0:64")
def registers(
    client: SwitchClient, *, array: ArrayName = None, indexes: Indexes = None, json_file: JsonFile = None
) -> None:
    """Show the values of a register."""
    _array(client, "register", array, indexes, json_file)


@_command("counters arrivals")
def counters(
    client: SwitchClient, *, array: ArrayName = None, indexes: Indexes = None, json_file: JsonFile = None
) -> None:
    """Show the non-zero cells of an indirect counter."""
    _array(client, "counter", array, indexes, json_file)


@_command("meters rates 2")
def meters(
    client: SwitchClient, *, array: ArrayName = None, indexes: Indexes = None, json_file: JsonFile = None
) -> None:
    """Show the configured cells of an indirect meter.

    `railweave switch tables` shows direct meters.
    """
    _array(client, "meter", array, indexes, json_file)


@_command("groups --grpc 127.0.0.1:9560 --device-id 2")
def groups(client: SwitchClient, *, json_file: JsonFile = None) -> None:
    """Show multicast groups, clone sessions and action profiles."""
    from railweave.switch.inspect import text  # noqa: PLC0415
    from railweave.switch.inspect.groups import groups as read  # noqa: PLC0415

    result = read(client)
    _show(result, json_file, lambda console: text.print_groups(console, result))


@_command("log --json log.json")
def log(client: SwitchClient, *, json_file: JsonFile = None) -> None:
    """Show the latest messages of the program.

    log_msg, assert and assume make messages. The switch keeps 1,000. It also writes each one to its output.
    """
    from railweave.switch.inspect import text  # noqa: PLC0415

    rows = [{"time_ns": one.time_ns, "text": one.text} for one in client.log().messages]
    _show({"messages": rows}, json_file, lambda console: text.print_log(console, rows))


@_command("impair 1/in:loss=0.01 '*:delay=2ms' --clear 2/in", without="device_id")
def impair(
    client: SwitchClient,
    *,
    links: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[PORT[/in|/out|/both]:KEY=VALUE,…]…",
            help="Impairments of the link at a port, or at all ports (*); the keys are loss, duplicate, "
            "reorder, corrupt, delay, rate and seed. Default direction: out, for packets that the "
            "switch sends.",
        ),
    ] = None,
    clear: Annotated[
        list[str] | None,
        typer.Option(
            metavar="PORT[/in|/out|/both]",
            help="Link of which the impairment is removed; the option may repeat.",
        ),
    ] = None,
) -> None:
    """Impair links of a running switch, or remove impairments.

    `railweave switch stats` counts the affected packets.
    """
    from railweave.switch.inspect.client import Unsupported  # noqa: PLC0415

    if not links and not clear:
        raise SwitchError("no links", "one at least", "name it, such as 1/in:loss=0.01 or --clear 1/in")
    try:
        client.impair(links or [], clear or [])
    except Unsupported:
        raise SwitchError(
            "this switch impairs no links", "the embedded switch", "start it with --target embedded"
        ) from None


@_command("trace --port 1 --count 3")
def trace(
    client: SwitchClient,
    *,
    port: Annotated[
        int | None, typer.Option(min=0, help="Port on which the packets arrive. Default: any port.")
    ] = None,
    count: Annotated[int, typer.Option(min=1, help="Number of packets to trace.")] = 1,
    timeout: Annotated[float, typer.Option(min=0.1, help="Longest wait in seconds for the packets.")] = 10.0,
    json_file: JsonFile = None,
) -> None:
    """Trace the next packets through parser, tables and actions."""
    from railweave.switch.inspect.client import Unsupported  # noqa: PLC0415
    from railweave.switch.trace import render  # noqa: PLC0415

    console = outputs.console(json_file, _PLAIN_WIDTH)
    traces: list[dict[str, Any]] = []
    try:
        for one in client.trace(port, count, timeout):
            traces.append(one)
            console.print(render(one), soft_wrap=True)
            console.print()
    except Unsupported:
        raise SwitchError(
            "this switch traces no packets",
            "the embedded switch",
            "start it with --target embedded, or BMv2 with --log-console",
        ) from None
    if len(traces) < count:
        console.print(f"{len(traces)} of {count} packets arrived within {timeout:g} s")
    outputs.write_json({"traces": traces}, json_file)
    if len(traces) < count:
        raise typer.Exit(WRONG)


def _array(
    client: SwitchClient, kind: str, name: str | None, indexes: str | None, json_file: Path | None
) -> None:
    from railweave.switch.inspect import cells, text  # noqa: PLC0415

    if name is None:
        rows = cells.declared(client, kind)
        _show({f"{kind}s": rows}, json_file, lambda console: text.print_declared(console, rows))
        return
    result = cells.cells(client, kind, name, indexes)
    _show(result, json_file, lambda console: text.print_cells(console, kind, result))


def _show(result: dict[str, Any], json_file: Path | None, print_text: Callable[[Console], None]) -> None:
    print_text(outputs.console(json_file, _PLAIN_WIDTH))
    outputs.write_json(result, json_file)
