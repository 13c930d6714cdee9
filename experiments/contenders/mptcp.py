# SPDX-License-Identifier: Apache-2.0
"""Multipath TCP, the Linux kernel's: the ring of `ring.py` over sockets that use all of a job's planes.

A connection begins on the first plane. Every host announces its addresses on the other planes, and the peer
adds paths (subflows) over them. After the run, the kernel's counters prove that these paths carried bytes.
"""

from __future__ import annotations

import contextlib
import socket
from collections import Counter
from collections.abc import AsyncIterator, Mapping
from typing import TYPE_CHECKING, Any

from railweave.errors import explain
from railweave.experiments.contenders import Endpoint, Job, ring
from railweave.topologies.lab.faults import Step, Tool, nic_of

if TYPE_CHECKING:
    from railweave.topologies.lab.lab import Lab

IPPROTO_MPTCP = 262  # linux/in.h
LIMITS = ("ip", "mptcp", "limits", "show")
COUNTERS = ("cat", "/proc/net/netstat")
LEAST_SHARE = 0.01  # of a host's bytes on each plane
# The kernel's scheduler uses a single path until the queue of this path is full.
LEAST_BYTES = 8 << 20


class Kind(ring.Kind):
    """The same ring over Multipath TCP."""

    def obstacle(self) -> str:
        """Return why this kernel cannot open a socket of Multipath TCP; empty if it can."""
        try:
            socket.socket(socket.AF_INET, socket.SOCK_STREAM, IPPROTO_MPTCP).close()
        except OSError as error:
            return explain(
                f"mptcp: the kernel opens no such socket ({error})",
                "a kernel with CONFIG_MPTCP",
                "set sysctl net.mptcp.enabled=1",
            )
        return ""

    def connect(self, job: Job, rank: int) -> Endpoint:
        """Join the ring. Its connections begin on the job's first plane."""
        return ring.Ring(rank, job, mptcp=True)

    @contextlib.asynccontextmanager
    async def on_lab(self, lab: Lab, job: Job) -> AsyncIterator[dict[str, Any]]:
        """Set up the hosts' endpoints. Yield the paths' counts. Raise OSError if a plane was not used."""
        limits = {host: lab.read(host, LIMITS).split() for host in lab.topology.hosts}
        extra: dict[str, Any] = {}
        try:
            for host in limits:
                lab.do([Step(host, Tool.IP, endpoints(lab, job, host))])
            before = _counts(lab, job)
            yield extra
            extra |= difference(before, _counts(lab, job))
            check(extra, job)
        finally:
            for host, words in limits.items():
                restored = dict(zip(words[::2], words[1::2], strict=True))
                lab.do([Step(host, Tool.IP, f"mptcp endpoint flush\n{set_limits(**restored)}")])


def endpoints(lab: Lab, job: Job, host: str) -> str:
    """Return the lines for `ip -batch` that let a host announce its addresses and use those of its peers."""
    others = job.planes[1:]
    lines = [set_limits(subflows=len(others), add_addr_accepted=len(others))]
    for plane in others:
        nic = nic_of(lab.topology.plane(plane), host)
        lines.append(f"mptcp endpoint add {nic.address} dev {nic.interface} signal\n")
    return "".join(lines)


def set_limits(subflows: int | str, add_addr_accepted: int | str) -> str:
    """Return the line for `ip -batch` that limits the paths of a connection in addition to the first."""
    return f"mptcp limits set subflow {subflows} add_addr_accepted {add_addr_accepted}\n"


def _counts(lab: Lab, job: Job) -> dict[str, dict[str, Counter[str]]]:
    """Return the bytes sent, by plane and host, and the kernel's counts of Multipath TCP, by host."""
    bytes_sent = {
        plane: Counter({host: counts.bytes_sent for host, counts in lab.interface_counters(plane).items()})
        for plane in job.planes
    }
    kernel = {host: Counter(multipath_counters(lab.read(host, COUNTERS))) for host in lab.topology.hosts}
    return {"bytes_sent": bytes_sent, "kernel": kernel}


def multipath_counters(netstat: str) -> dict[str, int]:
    """Return the counters of Multipath TCP in the text of /proc/net/netstat."""
    names, values = (line.split()[1:] for line in netstat.splitlines() if line.startswith("MPTcpExt:"))
    return dict(zip(names, map(int, values), strict=True))


def difference(
    before: Mapping[str, Mapping[str, Counter[str]]], after: Mapping[str, Mapping[str, Counter[str]]]
) -> dict[str, Any]:
    """Return the differences of counters that are not 0."""
    return {
        what: {key: dict(counts - before[what][key]) for key, counts in of.items()}
        for what, of in after.items()
    }


def check(extra: Mapping[str, Any], job: Job) -> None:
    """Raise OSError unless each connection had a path on each plane, and each plane carried bytes.

    Two ranks have a connection if the algorithms exchange messages between them.
    """
    connections, joined = (
        sum(counts.get(name, 0) for counts in extra["kernel"].values())
        for name in ("MPCapableSYNRX", "MPJoinAckRx")
    )
    expected = connections * (len(job.planes) - 1)
    if not connections or joined < expected:
        raise OSError(f"Multipath TCP joined {joined} paths of {expected} to {connections} connections")
    sent = extra["bytes_sent"]
    for host in sent[job.planes[0]]:
        total = sum(counts.get(host, 0) for counts in sent.values())
        idle = [plane for plane in job.planes if sent[plane].get(host, 0) < LEAST_SHARE * total]
        if idle and total >= LEAST_BYTES:
            raise OSError(
                f"Multipath TCP of {host} sent {total:,} bytes, but less than {LEAST_SHARE:.0%} of them "
                f"on {', '.join(idle)}"
            )
