# SPDX-License-Identifier: Apache-2.0
"""Network namespaces without names: file descriptors.

The kernel deletes such a namespace with its last user, however the test ends.
"""

from __future__ import annotations

import ctypes
import os
import subprocess
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path

import pytest

from railweave._rigs import roce

CLONE_NEWNET = 0x40000000
_OWN = "/proc/thread-self/ns/net"
_libc = ctypes.CDLL(None, use_errno=True)


@contextmanager
def namespace() -> Iterator[int]:
    """Make a network namespace for the block. It has no IPv6, because neighbour discovery adds packets."""
    with _back_home():
        if _libc.unshare(CLONE_NEWNET) != 0:
            raise OSError(ctypes.get_errno(), "cannot make a network namespace")
        descriptor = os.open(_OWN, os.O_RDONLY | os.O_CLOEXEC)
        for which in ("all", "default"):
            setting = Path(f"/proc/sys/net/ipv6/conf/{which}/disable_ipv6")
            if setting.exists():
                setting.write_text("1")
    try:
        yield descriptor
    finally:
        os.close(descriptor)


@contextmanager
def inside(descriptor: int) -> Iterator[None]:
    """Move this thread into the namespace: its new sockets and processes belong there."""
    with _back_home():
        _enter(descriptor)
        yield


@contextmanager
def inside_process(pid: int) -> Iterator[None]:
    """Move this thread into the network namespace of a process."""
    descriptor = os.open(f"/proc/{pid}/ns/net", os.O_RDONLY | os.O_CLOEXEC)
    try:
        with inside(descriptor):
            yield
    finally:
        os.close(descriptor)


@contextmanager
def _back_home() -> Iterator[None]:
    home = os.open(_OWN, os.O_RDONLY | os.O_CLOEXEC)
    try:
        yield
    finally:
        _enter(home)
        os.close(home)


def _enter(descriptor: int) -> None:
    if _libc.setns(descriptor, CLONE_NEWNET) != 0:
        raise OSError(ctypes.get_errno(), "cannot enter the network namespace")


def path_of(descriptor: int) -> str:
    """Return the path under which `ip … netns` finds the namespace."""
    return f"/proc/{os.getpid()}/fd/{descriptor}"


def ip(*command: str) -> None:
    """Run iproute2's ip in the namespace of this thread."""
    subprocess.run(["ip", *command], check=True)


@contextmanager
def filtered(descriptor: int, table: str, rules: str) -> Iterator[None]:
    """Add an nftables table, such as "ip wall", to a namespace. Skip the test if nft cannot do this."""
    with inside(descriptor):
        made = subprocess.run(["nft", "-f", "-"], input=f"add table {table}\n{rules}", text=True, check=False)
    if made.returncode != 0:
        pytest.skip("nft cannot filter packets here")
    try:
        yield
    finally:
        with inside(descriptor):
            subprocess.run(["nft", "delete", "table", *table.split()], check=True)


def dropping(descriptor: int, which: Mapping[str, str]) -> AbstractContextManager[None]:
    """Drop incoming RoCEv2 packets. `which` gives each device an nftables expression that matches them."""
    rules = "".join(
        f"add chain netdev drops {device} {{ type filter hook ingress device {device} priority 0; }}\n"
        f"add rule netdev drops {device} udp dport {roce.UDP_PORT} {match} counter drop\n"
        for device, match in which.items()
    )
    return filtered(descriptor, "netdev drops", rules)
