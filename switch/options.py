# SPDX-License-Identifier: Apache-2.0
"""The options of a switch process, and their checks."""

from __future__ import annotations

import asyncio
import re
import signal
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from railweave.access import private_file
from railweave.switch.errors import SwitchError
from railweave.switch.impairment import Direction, Impairment
from railweave.topologies.errors import TopologyError

DROP_PORT = 511  # v1model's egress_spec for "nowhere": no interface may have it
MAX_PRIORITY_QUEUES = 8  # v1model's priority has 3 bits
MAX_SUPER_PACKET_BYTES = 65_535  # the largest IP length
MAX_DEVICE_ID = (1 << 64) - 1  # P4Runtime's uint64
SHARED_PREFIX = "shm:"  # of the name of a link in shared memory, in place of an interface
_SHARED_NAME = re.compile(r"[A-Za-z0-9._-]{1,64}")


@dataclass(frozen=True)
class Tls:
    """PEM files: the server's certificate chain and key, and the CA of clients' certificates."""

    certificate: Path
    key: Path
    client_ca: Path | None = None  # None: clients need no certificate

    @classmethod
    def of(cls, certificate: Path | None, key: Path | None, client_ca: Path | None) -> Tls | None:
        """Return the files named on the command line; SwitchError if some are missing."""
        if certificate is None and key is None and client_ca is None:
            return None
        if certificate is None or key is None:
            raise SwitchError(
                "--tls-cert, --tls-key or --tls-ca alone",
                "--tls-cert and --tls-key, --tls-ca with both",
                "add the others",
            )
        return cls(certificate, key, client_ca)

    def read(self) -> tuple[bytes, bytes, bytes | None]:
        """Read key, certificate and CA; SwitchError names unreadable files, or a key that others can read."""
        try:
            key = private_file(str(self.key))
        except TopologyError as error:
            raise SwitchError(f"--tls-key {error}") from None
        return (
            key,
            read_file(self.certificate, "--tls-cert"),
            read_file(self.client_ca, "--tls-ca") if self.client_ca else None,
        )


def read_file(path: Path, what: str = "cannot read") -> bytes:
    """Return a file's contents; SwitchError says `what`, its path and the reason."""
    try:
        return path.read_bytes()
    except OSError as error:
        raise SwitchError(
            f"{what} {path}: {error.strerror}", "a file that can be read", "correct its name or its mode"
        ) from None


@dataclass(frozen=True)
class SwitchOptions:
    """The options of a switch process."""

    interfaces: Mapping[int, str]  # port number to interface name, or to the name of a shared link, shm:NAME
    grpc: str = "127.0.0.1:9559"  # address of the P4Runtime server, in gRPC's syntax
    device_id: int = 1  # as controllers name the switch
    refuses_empty_config: bool = False  # GetForwardingPipelineConfig fails without a program, as in BMv2
    program: Path | None = None  # BMv2 JSON to run from the start
    p4info: Path | None = None  # its P4Info, text or binary; None: P4Runtime waits for a controller's push
    super_packet_bytes: int = MAX_SUPER_PACKET_BYTES  # largest super-packet that is sent
    exact_bytes: bool = False  # only super-packets that the kernel cuts into exactly the program's packets
    impairments: Mapping[tuple[int, Direction], Impairment] = field(default_factory=dict)
    pcap: Mapping[int, Path] = field(default_factory=dict)  # folder for captures, by port
    cpu_port: int | None = None  # of packet-in and packet-out; no interface may have it
    tls: Tls | None = None  # None: the P4Runtime server speaks plain text
    priority_queues: int = 1  # of each port

    def __post_init__(self) -> None:
        """Refuse options that contradict each other."""
        if self.cpu_port is not None and self.cpu_port in self.interfaces:
            interface = self.interfaces[self.cpu_port]
            raise SwitchError(
                f"--cpu-port {self.cpu_port} is the port of {interface}",
                "a port without interface",
                "choose another number",
            )

    def ready_line(self) -> str:
        """Return the line that a switch prints once it serves."""
        ports = ",".join(f"{port}@{name}" for port, name in self.interfaces.items())
        return f"ready grpc={self.grpc} ports={ports}"


def parse_interfaces(specifications: Sequence[str]) -> dict[int, str]:
    """Parse `PORT@INTERFACE` and `PORT@shm:NAME` strings into a mapping; SwitchError for anything else."""
    interfaces: dict[int, str] = {}
    for specification in specifications:
        number, at, name = specification.partition("@")
        if not at or not name or not number.isdecimal():
            raise SwitchError(
                f"--interface {specification!r}", "PORT@INTERFACE, such as 1@s1-eth1", "correct --interface"
            )
        if name.startswith(SHARED_PREFIX) and not _SHARED_NAME.fullmatch(name, len(SHARED_PREFIX)):
            raise SwitchError(
                f"link {name!r}",
                "shm:NAME, NAME of up to 64 letters, digits, dots, dashes and underscores",
                "correct --interface",
            )
        port = int(number)
        if port >= DROP_PORT:
            raise SwitchError(
                f"port {port}", f"0…{DROP_PORT - 1} ({DROP_PORT} means drop)", "correct --interface"
            )
        if port in interfaces:
            raise SwitchError(
                f"port {port} is given twice: {interfaces[port]} and {name}",
                "each port once",
                "correct --interface",
            )
        if name in interfaces.values():
            raise SwitchError(
                f"interface {name} is given twice", "each interface once", "correct --interface"
            )
        interfaces[port] = name
    return interfaces


def stop_on_signals() -> asyncio.Event:
    """Return an event that SIGINT and SIGTERM set, instead of ending the process."""
    stop = asyncio.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    return stop


def parse_pcap(specifications: Sequence[str], ports: Mapping[int, str]) -> dict[int, Path]:
    """Return folders by port from `FOLDER` (all ports) or `PORT@FOLDER`; SwitchError for anything else."""
    folders: dict[int, Path] = {}
    for specification in specifications:
        number, at, folder = specification.partition("@")
        if not at or not number.isdecimal():
            folders |= dict.fromkeys(ports, Path(specification))
        elif int(number) in ports and folder:
            folders[int(number)] = Path(folder)
        else:
            raise SwitchError(
                f"--pcap {specification}", f"FOLDER or PORT@FOLDER, ports {list(ports)}", "correct --pcap"
            )
    return folders
