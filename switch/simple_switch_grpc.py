# SPDX-License-Identifier: Apache-2.0
"""The embedded switch behind the command line of BMv2's `simple_switch_grpc`.

It differs from `railweave switch` where BMv2 does. Its defaults are device id 0 and all addresses. It
overwrites captures. An empty switch refuses GetForwardingPipelineConfig.
"""

from __future__ import annotations

import argparse
import asyncio
import logging
import logging.handlers
import os
import sys
from collections.abc import Callable, Sequence
from importlib.metadata import version
from pathlib import Path
from typing import NoReturn

from railweave.errors import UserError
from railweave.outputs import print_line
from railweave.switch.errors import SwitchError
from railweave.switch.options import (
    DROP_PORT,
    MAX_DEVICE_ID,
    MAX_PRIORITY_QUEUES,
    SwitchOptions,
    Tls,
    parse_interfaces,
    parse_pcap,
)

NAME = "railweave-simple-switch-grpc"
_LEVELS = {
    "trace": logging.DEBUG,
    "debug": logging.DEBUG,
    "info": logging.INFO,
    "warn": logging.WARNING,
    "error": logging.ERROR,
    "off": logging.CRITICAL,
}
# BMv2's options for parts that the embedded switch does not have, or does not limit.
_WITHOUT_EFFECT = (
    *("nanolog", "notifications-addr", "debugger-addr", "dump-packet-data", "max-port-count"),
    *("max-mc-groups", "max-l1-entries", "max-l2-entries"),
)
_FLAGS_WITHOUT_EFFECT = ("debugger", "disable-swap", "log-flush")


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        raise SwitchError(message, "options of simple_switch_grpc", f"see {NAME} --help")


def main() -> None:
    """Run the switch until Ctrl-C or SIGTERM."""
    os.environ.setdefault("GRPC_VERBOSITY", "NONE")  # errors are reported in one line
    try:
        given = parse(sys.argv[1:])
        options = options_of(given)
        for note in notes(given):
            print(f"{NAME}: {note}", file=sys.stderr)
        # Imported only now: gRPC is slow to import, and --help needs none.
        from railweave.switch import daemon  # noqa: PLC0415

        asyncio.run(daemon.run(options, _sink(given)))
    except UserError as error:
        print(f"{NAME}: {error}", file=sys.stderr)
        sys.exit(error.status)


def parse(arguments: Sequence[str]) -> argparse.Namespace:
    """Parse BMv2's options, in any order; `--`, which separates those of the target, may be left out."""
    separator = arguments.index("--") if "--" in arguments else len(arguments)
    return _parser().parse_intermixed_args([*arguments[:separator], *arguments[separator + 1 :]])


def _parser() -> argparse.ArgumentParser:
    parser = _Parser(
        prog=NAME,
        usage="%(prog)s [options] [JSON] [-- options of the target]",
        description="Run the embedded switch with the options of BMv2's simple_switch_grpc.",
    )
    add = parser.add_argument
    add("program", nargs="?", type=Path, metavar="JSON", help="file of the program (BMv2 JSON)")
    add("-i", "--interface", action="append", default=[], metavar="PORT@IF", help="port and its interface")
    add("--device-id", type=int, default=0, metavar="ID", help="device id in P4Runtime (default: 0)")
    add("--no-p4", action="store_true", help="start without a program; a controller pushes one")
    add("--pcap", nargs="?", const=".", metavar="FOLDER", help="capture all packets (default folder: .)")
    add("--log-console", action="store_true", help="write the log to stdout")
    add("--log-file", type=Path, metavar="FILE", help="write the log to FILE.txt")
    add("-L", "--log-level", choices=_LEVELS, default="trace", help="least level that is logged")
    add("--log-file-max-size", type=int, default=5 << 20, metavar="BYTES", help="size of a log file")
    add("--log-file-max-files", type=int, default=3, metavar="N", help="full log files that are kept")
    add("--thrift-port", type=int, metavar="PORT", help="accepted, but Thrift is not served")
    add("-v", "--version", action="version", version=f"{NAME} {version('railweave')}")
    target = parser.add_argument_group("options of the target").add_argument
    target("--grpc-server-addr", default="0.0.0.0:9559", metavar="HOST:PORT", help="address of P4Runtime")
    target("--cpu-port", type=int, metavar="PORT", help="port of packet-in and packet-out")
    target("--drop-port", type=int, default=DROP_PORT, metavar="PORT", help=f"must be {DROP_PORT}")
    target("--priority-queues", type=int, default=1, metavar="N", help="queues of each port (default: 1)")
    target("--grpc-server-ssl", action="store_true", help="serve P4Runtime over TLS")
    target("--grpc-server-cert", type=Path, metavar="FILE", help="certificate (PEM)")
    target("--grpc-server-key", type=Path, metavar="FILE", help="key of the certificate (PEM)")
    target("--grpc-server-cacert", type=Path, metavar="FILE", help="CA of the clients' certificates (PEM)")
    target("--grpc-server-with-client-auth", action="store_true", help="clients need a certificate")
    other = parser.add_argument_group("options without effect").add_argument
    for name in _WITHOUT_EFFECT:
        other(f"--{name}", metavar="VALUE")
    for name in _FLAGS_WITHOUT_EFFECT:
        other(f"--{name}", action="store_true")
    return parser


def options_of(given: argparse.Namespace) -> SwitchOptions:
    """Return the options of the embedded switch; SwitchError for options that only BMv2 supports."""
    if given.program is None and not given.no_p4:
        raise SwitchError("no program", "a BMv2 JSON file or --no-p4", "name the file that p4c wrote")
    if given.log_console and given.log_file:
        raise SwitchError("--log-console with --log-file", "one of them", "omit one")
    _check_range("--device-id", given.device_id, 0, MAX_DEVICE_ID)
    _check_range("--priority-queues", given.priority_queues, 1, MAX_PRIORITY_QUEUES)
    if given.cpu_port is not None:
        _check_range("--cpu-port", given.cpu_port, 1, DROP_PORT - 1)
    if given.drop_port != DROP_PORT:
        raise SwitchError(
            f"--drop-port {given.drop_port}",
            f"{DROP_PORT}, the only drop port of the embedded switch",
            "omit --drop-port",
        )
    interfaces = parse_interfaces(given.interface)
    return SwitchOptions(
        interfaces=interfaces,
        grpc=given.grpc_server_addr,
        device_id=given.device_id,
        program=None if given.no_p4 else given.program,
        pcap=parse_pcap([given.pcap] if given.pcap else [], interfaces),
        cpu_port=given.cpu_port,
        tls=_tls(given),
        priority_queues=given.priority_queues,
        refuses_empty_config=True,
    )


def _check_range(option: str, value: int, low: int, high: int) -> None:
    if not low <= value <= high:
        raise SwitchError(f"{option} {value}", f"{low}…{high}", f"correct {option}")


def _tls(given: argparse.Namespace) -> Tls | None:
    if not given.grpc_server_ssl:
        return None
    if given.grpc_server_cert is None or given.grpc_server_key is None:
        raise SwitchError(
            "--grpc-server-ssl alone", "--grpc-server-cert and --grpc-server-key", "add the missing files"
        )
    ca = given.grpc_server_cacert if given.grpc_server_with_client_auth else None
    return Tls(given.grpc_server_cert, given.grpc_server_key, ca)


def notes(given: argparse.Namespace) -> list[str]:
    """Return a line for each kind of option that was given without effect."""
    names = (*_WITHOUT_EFFECT, *_FLAGS_WITHOUT_EFFECT)
    ignored = [f"--{name}" for name in names if getattr(given, name.replace("-", "_"))]
    lines = [f"{', '.join(ignored)}: no effect in the embedded switch"] if ignored else []
    if given.thrift_port is not None:
        address = given.grpc_server_addr.replace("0.0.0.0", "127.0.0.1")  # noqa: S104 - no address to listen on
        lines.append(
            f"--thrift-port {given.thrift_port}: Thrift is not served; inspect this switch with: "
            f"railweave switch stats --grpc {address} --device-id {given.device_id}"
        )
    return lines


def _sink(given: argparse.Namespace) -> Callable[[str], None]:
    """Return a function that prints the line `ready …` and logs all other lines in BMv2's form."""
    log = logging.Logger("railweave", _LEVELS[given.log_level])
    handler: logging.Handler = logging.NullHandler()
    if given.log_console:
        handler = _Console()
    elif given.log_file:
        handler = _log_file(Path(f"{given.log_file}.txt"), given)
    handler.setFormatter(
        logging.Formatter("[%(asctime)s.%(msecs)03d] [%(name)s] [%(levelname).1s] %(message)s", "%H:%M:%S")
    )
    log.addHandler(handler)

    def say(line: str) -> None:
        if line.startswith("ready "):
            print_line(line)
        else:
            log.info(line)

    return say


class _Console(logging.Handler):
    """Writes records to the output."""

    def emit(self, record: logging.LogRecord) -> None:
        print_line(self.format(record))


def _log_file(path: Path, given: argparse.Namespace) -> logging.Handler:
    try:
        return logging.handlers.RotatingFileHandler(
            path, maxBytes=given.log_file_max_size, backupCount=given.log_file_max_files
        )
    except OSError as error:
        raise SwitchError(
            f"--log-file {given.log_file}: {error.strerror}", "a file that can be written", "name another one"
        ) from None


if __name__ == "__main__":
    main()
