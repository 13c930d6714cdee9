# SPDX-License-Identifier: Apache-2.0
"""Multipath TCP, the Linux kernel's: the ring of `ring.py` over sockets that use all of a job's planes.

A connection begins on the first plane; every host announces its addresses on the others, over which the peer
adds paths (subflows). That they carried the bytes is read from the kernel's counters after the run.
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
# Until the queue of one path is in the way, the kernel's scheduler sends everything there.
LEAST_BYTES = 8 << 20


class Kind(ring.Kind):
    """The same ring over Multipath TCP."""

    def obstacle(self) -> str:
        """Return why this kernel opens no socket of Multipath TCP; empty if it does."""
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
        """Join the ring; its connections begin on the job's first plane."""
        return ring.Ring(rank, job, mptcp=True)

    @contextlib.asynccontextmanager
    async def on_lab(self, lab: Lab, job: Job) -> AsyncIterator[dict[str, Any]]:
        """Set up the hosts' endpoints; yields the paths' counts. OSError where not all planes were used."""
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
    """Return the lines for `ip -batch` by which a host announces its addresses and takes its peers'."""
    others = job.planes[1:]
    lines = [set_limits(subflows=len(others), add_addr_accepted=len(others))]
    for plane in others:
        nic = nic_of(lab.topology.plane(plane), host)
        lines.append(f"mptcp endpoint add {nic.address} dev {nic.interface} signal\n")
    return "".join(lines)


def set_limits(subflows: int | str, add_addr_accepted: int | str) -> str:
    """Return the line for `ip -batch` that sets how many paths a connection may have beside the first."""
    return f"mptcp limits set subflow {subflows} add_addr_accepted {add_addr_accepted}\n"


def _counts(lab: Lab, job: Job) -> dict[str, dict[str, Counter[str]]]:
    """Return bytes sent by plane and host, and the kernel's counts of Multipath TCP by host."""
    bytes_sent = {
        plane: Counter({host: counts.bytes_sent for host, counts in lab.interface_counters(plane).items()})
        for plane in job.planes
    }
    kernel = {host: Counter(multipath_counters(lab.read(host, COUNTERS))) for host in lab.topology.hosts}
    return {"bytes_sent": bytes_sent, "kernel": kernel}


def multipath_counters(netstat: str) -> dict[str, int]:
    """Read what /proc/net/netstat says of Multipath TCP."""
    names, values = (line.split()[1:] for line in netstat.splitlines() if line.startswith("MPTcpExt:"))
    return dict(zip(names, map(int, values), strict=True))


def difference(
    before: Mapping[str, Mapping[str, Counter[str]]], after: Mapping[str, Mapping[str, Counter[str]]]
) -> dict[str, Any]:
    """Return what was counted between: only what is not 0."""
    return {
        what: {key: dict(counts - before[what][key]) for key, counts in of.items()}
        for what, of in after.items()
    }


def check(extra: Mapping[str, Any], job: Job) -> None:
    """Raise OSError unless each connection had a path on each plane, and each plane carried bytes.

    Ranks are connected with those that the algorithms have them exchange messages with.
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
