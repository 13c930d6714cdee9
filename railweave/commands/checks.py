# SPDX-License-Identifier: Apache-2.0
"""The checks of `railweave doctor`. Each probes the machine without lasting changes."""

from __future__ import annotations

import os
import shutil
import subprocess
from dataclasses import dataclass
from importlib import import_module, metadata

from railweave import cli, native_module
from railweave.errors import parts
from railweave.topologies.errors import LabError

TIMEOUT_S = 20
DEMO_MODULES = (  # of the command and of its ranks
    "railweave.commands.demo",
    "railweave.experiments.training.report",
    "railweave.experiments.training.run",
    "railweave.experiments.training.worker",
)


@dataclass(frozen=True)
class Finding:
    """The state of one thing that railweave can use."""

    name: str
    present: bool
    needed: bool  # by the demo; otherwise optional
    detail: str  # the value or state that was found
    expected: str
    remedy: str


def run_checks() -> list[Finding]:
    """Return all findings, required parts first."""
    findings = [_root(), _native(), _artifacts(), _modules(), _lab()]
    findings += [_tool(*entry) for entry in TOOLS]
    findings += [_package(*entry) for entry in PACKAGES]
    findings += [_kernel(*entry) for entry in KERNEL]
    findings.append(super_packets())
    return sorted(findings, key=lambda finding: not finding.needed)


# Name of the program, whether it is needed, the command that prints its version, and the remedy.
TOOLS = (
    ("ip", True, ("ip", "-Version"), "apt-get install iproute2"),
    ("tc", True, ("tc", "-Version"), "apt-get install iproute2"),
    ("nft", True, ("nft", "--version"), "apt-get install nftables"),
    ("mnexec", True, None, "apt-get install mininet"),
    ("setpriv", True, ("setpriv", "--version"), "apt-get install util-linux"),
    (
        "p4c-bm2-ss",
        False,
        ("p4c-bm2-ss", "--version"),
        "for `make p4`: install p4c (https://github.com/p4lang/p4c)",
    ),
    (
        "simple_switch_grpc",
        False,
        ("simple_switch_grpc", "--version"),
        "for --switch bmv2: install BMv2 (https://github.com/p4lang/behavioral-model)",
    ),
    (
        "qemu-system-x86_64",
        False,
        ("qemu-system-x86_64", "--version"),
        "for tests against rxe: apt-get install qemu-system-x86",
    ),
    ("spin", False, ("spin", "-V"), "for the model of the slot algorithm: apt-get install spin"),
    ("mpirun", False, ("mpirun", "--version"), "for comparisons with Open MPI: make baseline"),
)

PACKAGES = (
    *(
        (name, True, cli.INSTALL)
        for name in ("mininet", "numpy", "finsy", "grpcio", "scikit-learn", "matplotlib")
    ),
    ("torch", False, "for comparisons with Gloo: make baseline, or pip install torch==2.13.0"),
    ("scapy", False, "for tests: pip install scapy"),
)


def _root() -> Finding:
    user = "root" if os.geteuid() == 0 else f"user {os.geteuid()}"
    expected = "root, which network namespaces need"
    return Finding("root", os.geteuid() == 0, True, user, expected, "run with sudo")


def _native() -> Finding:
    problem = native_module.problem()
    detail = problem or "railweave._native"
    return Finding("native module", not problem, True, detail, native_module.EXPECTED, native_module.REMEDY)


def _lab() -> Finding:
    """Ask what every lab asks before it is made."""
    from railweave.topologies.lab.namespaces import require_tools  # noqa: PLC0415

    try:
        require_tools()
    except LabError as error:
        return Finding("network namespaces", False, True, *parts(str(error)))
    return Finding("network namespaces", True, True, "can be made", "network namespaces", "run with sudo")


def _modules() -> Finding:
    """Import what the demo imports."""
    rest = ("modules that can be imported", "pip install railweave")
    try:
        for name in DEMO_MODULES:
            import_module(name)
    except ImportError as error:
        return Finding("the demo's modules", False, True, str(error), *rest)
    return Finding("the demo's modules", True, True, "can be imported", *rest)


def _artifacts() -> Finding:
    from railweave.p4src.artifacts import artifact  # noqa: PLC0415

    rest = ("the aggregation program for 256 lanes", "make p4")
    try:
        artifact(256)
    except Exception as error:
        return Finding("compiled P4 program", False, True, str(error), *rest)
    return Finding("compiled P4 program", True, True, "p4src/build", *rest)


def _tool(name: str, needed: bool, version: tuple[str, ...] | None, remedy: str) -> Finding:
    path, expected = shutil.which(name), f"the command {name}"
    if path is None:
        return Finding(name, False, needed, "not on PATH", expected, remedy)
    return Finding(name, True, needed, (_first_line(version) if version else "") or path, expected, remedy)


def _first_line(command: tuple[str, ...]) -> str:
    done = _run(command)
    if done is None:
        return ""
    lines = [line.strip() for line in (done.stdout + done.stderr).splitlines() if line.strip()]
    return lines[0][:60] if lines else ""


def _package(name: str, needed: bool, remedy: str) -> Finding:
    expected = f"the Python package {name}"
    try:
        return Finding(name, True, needed, metadata.version(name), expected, remedy)
    except metadata.PackageNotFoundError:
        return Finding(name, False, needed, "not installed", expected, remedy)


# Kernel features are tried in a temporary network namespace.
KERNEL: tuple[tuple[str, bool, str, str], ...] = (
    (
        "veth and bridge",
        True,
        "ip link add name a0 type veth peer name b0 && ip link add name br0 type bridge",
        "veth, bridge",
    ),
    (
        "tbf (link rates)",
        True,
        "ip link add name a0 type veth peer name b0 && "
        "tc qdisc add dev a0 root tbf rate 1mbit burst 4000 limit 9000",
        "sch_tbf",
    ),
    (
        "nftables on bridges (loss)",
        True,
        "nft add table bridge t && nft 'add chain bridge t c { type filter hook forward priority 0; }' && "
        "nft add rule bridge t c numgen random mod 100 '<' 1 drop",
        "nf_tables, nft_numgen",
    ),
    ("MPTCP", False, "test -e /proc/sys/net/mptcp/enabled", "CONFIG_MPTCP"),
)


def _kernel(name: str, needed: bool, script: str, feature: str) -> Finding:
    if os.geteuid() != 0:
        return Finding(name, False, needed, "an ordinary user", "root, who can check it", "run with sudo")
    expected = f"a kernel with {feature}"
    remedy = "start such a kernel" if needed else "for one more baseline, start such a kernel"
    done = _run(("unshare", "--net", "sh", "-c", script))
    present = done is not None and done.returncode == 0
    complaint = "no unshare" if done is None else (done.stderr.strip().splitlines() or ["fails"])[0]
    if complaint.startswith("unshare: "):
        expected, remedy = (
            "root that may make network namespaces",
            "run as root, in a container with --privileged",
        )
    return Finding(name, present, needed, "works" if present else complaint, expected, remedy)


def super_packets() -> Finding:
    """Find out whether RDMA rails in user space can hand many packets to the kernel at once."""
    name = "UDP super-packets (RDMA rails)"
    rest = ("Linux 6.2 or later", "for faster RDMA rails in user space, start Linux 6.2 or later")
    try:
        from railweave._native import roce  # noqa: PLC0415

        works = roce.try_kernel_cuts()
    except (ImportError, OSError) as error:
        return Finding(name, False, False, str(error), *rest)
    refusal = "the kernel refuses them on packet sockets: packets are sent one by one"
    return Finding(name, works, False, "works" if works else refusal, *rest)


def _run(command: tuple[str, ...]) -> subprocess.CompletedProcess[str] | None:
    try:
        return subprocess.run(command, capture_output=True, text=True, timeout=TIMEOUT_S, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return None
