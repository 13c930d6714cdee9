# SPDX-License-Identifier: Apache-2.0
"""Four programs that public software switches were measured with, their table entries and their packets.

NIKSS was measured with such programs (Osiński et al., "A novel programmable software datapath for
Software-Defined Networking", CoNEXT 2022). They are written here from the paper's description. The numbers of
entries, the flow and the published rates are those of Figure 6 and its artifact.
`python -m railweave.benchmarks.programs` compiles the programs (p4c-bm2-ss on PATH).
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import finsy as fy

from railweave.benchmarks.aggregation import udp_frame
from railweave.p4src.artifacts import SOURCES_RECORD, built_hashes, source_hashes
from railweave.p4src.compile import compile_or_exit, compile_program, compiler_version

FOLDER: Final = Path(__file__).with_name("p4")
BUILD: Final = FOLDER / "build"

IN_PORT, OUT_PORT = 1, 2
FRAME_BYTES = 60  # 64 on the wire, with the frame check sequence
ROUTER_MAC, ROUTER_OUT_MAC = 0x000000000001, 0x020000000002
SOURCE_MAC, NEXT_MAC = 0x020000000011, 0x020000000012
SOURCE_PORT, DESTINATION_PORT = 1025, 12
UDP = 17
VLAN = 1
USER = "48.0.0.4"
CORE_INTERFACE, ACCESS_INTERFACE = 2, 1
SESSION, FAR, TEID = 1, 10, 0x10E1
GATEWAY, BASE_STATION = "172.20.16.105", "172.20.16.99"
SERVICE_TAG, CUSTOMER_TAG = 10, 100
LINE, PPPOE_SESSION = 99, 64
ROUTE = 2  # FORWARD_ROUTE in bng.p4
UNLIMITED = 1 << 40  # bytes, and bytes per second: the meter marks no packet


@dataclass(frozen=True)
class Program:
    """A program with the entries and the frame that it is measured with."""

    name: str  # of its files
    title: str  # in the paper
    published_mpps: float  # of NIKSS (XDP) on one core, 64-byte packets, in millions per second
    entries: tuple[fy.P4TableEntry, ...]
    frame: bytes  # enters by IN_PORT; the result leaves by OUT_PORT
    meters: tuple[fy.P4MeterEntry, ...] = ()

    @property
    def json_path(self) -> Path:
        """The compiled program."""
        return BUILD / f"{self.name}.json"

    @property
    def p4info_path(self) -> Path:
        """The P4Info of the compiled program."""
        return BUILD / f"{self.name}.p4info.txtpb"

    @property
    def files(self) -> tuple[Path, Path]:
        """P4Info and compiled program."""
        return self.p4info_path, self.json_path

    @property
    def updates(self) -> list[fy.P4TableEntry | fy.P4MeterEntry]:
        """The updates that a controller writes."""
        return [*self.entries, *self.meters]


def entry(
    table: str, match: dict[str, Any], action: str, priority: int = 0, **parameters: Any
) -> fy.P4TableEntry:
    """Return an entry that is to be inserted."""
    return +fy.P4TableEntry(
        table, match=fy.P4TableMatch(match), action=fy.P4TableAction(action, **parameters), priority=priority
    )


def frame(destination_mac: int, source: str, destination: str, ttl: int = 64) -> bytes:
    """Return a UDP packet of the flow, in a frame of FRAME_BYTES."""
    body = b"x" * (FRAME_BYTES - 14 - 20 - 8)  # behind the headers of Ethernet, IPv4 and UDP
    ports = (SOURCE_PORT, DESTINATION_PORT)
    return udp_frame((destination_mac, SOURCE_MAC), source, destination, ports, body, ttl)


L2FWD = Program(
    "l2fwd",
    "L2FWD",
    5.72,
    (entry("stations", {"destination": NEXT_MAC}, "forward", port=OUT_PORT),),
    frame(NEXT_MAC, "16.0.0.1", "48.0.0.1"),
)
L2L3_ACL = Program(
    "l2l3_acl",
    "L2L3-ACL",
    2.62,
    (
        entry("port_vlans", {"ingress_port": IN_PORT}, "tag", vlan=VLAN),
        entry("routable", {"destination": ROUTER_MAC, "vlan": VLAN}, "permit"),
        entry(
            "routes", {"destination": "48.0.0.0/24"}, "next_hop", src=ROUTER_OUT_MAC, dst=NEXT_MAC, vlan=VLAN
        ),
        entry("stations", {"destination": NEXT_MAC, "vlan": VLAN}, "forward", port=OUT_PORT),
        entry(
            "acl",
            {
                "source": "16.0.0.1",
                "destination": "48.0.0.1",
                "protocol": UDP,
                "source_port": SOURCE_PORT,
                "destination_port": DESTINATION_PORT,
            },
            "permit",
        ),
        entry("egress_vlans", {"egress_port": OUT_PORT}, "untag"),
    ),
    frame(ROUTER_MAC, "16.0.0.1", "48.0.0.1"),
)
UPF = Program(
    "upf",
    "UPF (encap)",
    2.04,
    (
        entry("source_interfaces", {"ingress_port": IN_PORT}, "set_source", **{"from": CORE_INTERFACE}),
        entry("sessions", {"user": USER}, "set_session", session=SESSION),
        entry(
            "pdrs",
            {"session": SESSION, "source": "16.0.0.4", "source_interface": CORE_INTERFACE},
            "set_far",
            priority=9,
            far=FAR,
        ),
        entry(
            "fars", {"far": FAR}, "encapsulate", to=ACCESS_INTERFACE, teid=TEID, src=GATEWAY, dst=BASE_STATION
        ),
        entry(
            "routes",
            {"interface": ACCESS_INTERFACE, "destination": "172.20.16.0/24"},
            "next_hop",
            src=ROUTER_OUT_MAC,
            dst=NEXT_MAC,
            port=OUT_PORT,
        ),
    ),
    frame(ROUTER_MAC, "16.0.0.4", USER),
)
BNG = Program(
    "bng",
    "BNG (encap)",
    1.59,
    (
        entry("ingress_vlans", {"ingress_port": IN_PORT}, "permit", priority=1, vlan=VLAN),
        entry(
            "forwarding_types",
            {"destination": ROUTER_MAC, "ingress_port": IN_PORT, "ip_type": 0x0800},
            "set_forwarding",
            priority=1,
            forwarding=ROUTE,
        ),
        entry(
            "routes",
            {"destination": "48.0.0.0/24"},
            "next_hop",
            src=ROUTER_OUT_MAC,
            dst=NEXT_MAC,
            port=OUT_PORT,
        ),
        entry("next_tags", {"egress_port": OUT_PORT}, "set_tags", vlan=SERVICE_TAG, inner_vlan=CUSTOMER_TAG),
        entry("lines", {"vlan": SERVICE_TAG, "inner_vlan": CUSTOMER_TAG}, "set_line", line=LINE),
        entry("line_sessions", {"line": LINE}, "set_session", session=PPPOE_SESSION),
        entry("egress_vlans", {"egress_port": OUT_PORT}, "push"),
    ),
    frame(ROUTER_MAC, "16.0.0.1", "48.0.0.1"),
    (
        ~fy.P4MeterEntry(
            "best_effort",
            index=LINE,
            config=fy.P4MeterConfig(cir=UNLIMITED, cburst=UNLIMITED, pir=UNLIMITED, pburst=UNLIMITED),
        ),
    ),
)
PROGRAMS: Final = (L2FWD, L2L3_ACL, UPF, BNG)


def hashes(build: Path = BUILD) -> str:
    """Return the hashes of the sources and of the compiled programs."""
    files = [build / path.name for each in PROGRAMS for path in (each.json_path, each.p4info_path)]
    return source_hashes(root=FOLDER) + built_hashes(files, build)


def compile_all(build: Path = BUILD) -> None:
    """Compile the programs into a folder, and record compiler and sources there. Raise CompileError."""
    for program in PROGRAMS:
        files = (build / program.json_path.name, build / program.p4info_path.name)
        compile_program(f"{program.name}.p4", *files, root=FOLDER)
    (build / SOURCES_RECORD).write_text(f"# {compiler_version()}\n{hashes(build)}", encoding="utf-8")


if __name__ == "__main__":
    compile_or_exit(compile_all)
