# SPDX-License-Identifier: Apache-2.0
"""`railweave shell`: p4runtime-shell on a switch, in its own virtual environment."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Annotated

import typer

from railweave.exit_status import one_line_errors
from railweave.help_texts import examples
from railweave.switch.errors import SwitchError
from railweave.switch.inspect import commands as options

app = typer.Typer()


@app.command(
    "shell",
    epilog=examples("shell --grpc 127.0.0.1:9559 --election-id 0,1 --config x.p4info.txtpb,x.json"),
)
def shell(
    *,
    grpc: options.Grpc = "127.0.0.1:9559",
    device_id: options.DeviceId = 1,
    election_id: Annotated[
        str,
        typer.Option(
            metavar="HIGH,LOW",
            help="Election id; above the controller's, the shell becomes primary, otherwise it can only "
            "read while a controller is connected.",
        ),
    ] = "0,0",
    role: Annotated[
        str | None, typer.Option(help="Name of the P4Runtime role to take. Default: the default role.")
    ] = None,
    config: Annotated[
        str | None,
        typer.Option(
            metavar="P4INFO,JSON",
            help="Files of a program to push first: P4Info (text) and BMv2 JSON. Default: none.",
        ),
    ] = None,
    tls_ca: options.TlsCa = None,
    tls_cert: options.TlsCert = None,
    tls_key: options.TlsKey = None,
) -> None:
    """Open p4runtime-shell on a switch.

    It is an IPython prompt. The first use creates its virtual environment.

    Try `tables`, `te = table_entry["NAME"](action="ACTION")` and `te?`. Commands can also come from a pipe.
    """
    from railweave.shell_environment import ensure  # noqa: PLC0415

    arguments = ["--grpc-addr", grpc, "--device-id", str(device_id)]
    with one_line_errors():
        arguments += ["--election-id", _election(election_id)]
        if role is not None:
            arguments += ["--role-name", role]
        if config is not None:
            arguments += ["--config", _config(config)]
        for option, path in (("--cacert", tls_ca), ("--cert", tls_cert), ("--private-key", tls_key)):
            if path is not None:
                arguments += ["--ssl", option, str(_existing(path))]
        _require_switch(grpc, device_id, tls_ca, tls_cert, tls_key, program_follows=config is not None)
        python = ensure(lambda line: typer.echo(line, err=True))
    os.execv(python, [str(python), "-m", "p4runtime_sh", *arguments])  # noqa: S606 - it becomes the shell


def _require_switch(
    grpc: str, device_id: int, ca: Path | None, cert: Path | None, key: Path | None, *, program_follows: bool
) -> None:
    """Report in one line what the shell would report by a traceback: no switch, other device, no program."""
    from railweave.switch.inspect.client import NoProgram, SwitchClient  # noqa: PLC0415
    from railweave.switch.options import Tls  # noqa: PLC0415

    try:
        with SwitchClient(grpc, device_id, ca, Tls.of(cert, key, None)) as client:
            client.p4info()
    except NoProgram as missing:
        if not program_follows:
            raise SwitchError(f"{missing}, or push one with --config") from None


def _election(given: str) -> str:
    if not re.fullmatch(r"\d{1,20},\d{1,20}", given) or any(int(part) >> 64 for part in given.split(",")):
        raise SwitchError(
            f"--election-id {given!r}", "HIGH,LOW: two numbers of 64 bits, such as 0,1", "correct the id"
        )
    return given


def _config(given: str) -> str:
    p4info, comma, program = given.partition(",")
    if not comma or not p4info or not program:
        raise SwitchError(
            f"--config {given!r}", "P4INFO,JSON: two files separated by a comma", "correct --config"
        )
    return f"{_existing(Path(p4info))},{_existing(Path(program))}"


def _existing(path: Path) -> Path:
    if not path.is_file():
        raise SwitchError(f"{path}: no such file", "a file that can be read", "correct the name")
    return path
