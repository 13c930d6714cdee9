# SPDX-License-Identifier: Apache-2.0
"""Network namespaces without names: descriptors, which go with their last user however the test ends."""

from __future__ import annotations

import ctypes
import os
import subprocess
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path

import pytest

from railweave._native import roce

CLONE_NEWNET = 0x40000000
_OWN = "/proc/thread-self/ns/net"
_libc = ctypes.CDLL(None, use_errno=True)


@contextmanager
def namespace() -> Iterator[int]:
    """Make a network namespace without IPv6, whose discovery is noise, for as long as the block runs."""
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
    """Have this thread make its sockets and start its processes in the namespace."""
    with _back_home():
        _enter(descriptor)
        yield


@contextmanager
def inside_process(pid: int) -> Iterator[None]:
    """Do the same in the namespace of a process."""
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
    """Have a table of nftables, such as "ip wall", in a namespace. Skip the test where nft cannot."""
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
    """Drop RoCEv2 packets that come in: `which`, an expression of nftables, by device."""
    rules = "".join(
        f"add chain netdev drops {device} {{ type filter hook ingress device {device} priority 0; }}\n"
        f"add rule netdev drops {device} udp dport {roce.UDP_PORT} {match} counter drop\n"
        for device, match in which.items()
    )
    return filtered(descriptor, "netdev drops", rules)
