# SPDX-License-Identifier: Apache-2.0
"""Links between a switch process and the test: veth pairs in a separate network namespace."""

from __future__ import annotations

import ctypes
import fcntl
import itertools
import os
import re
import socket
import struct
import subprocess
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TypeVar

_T = TypeVar("_T")

NAME = re.compile(r"rwt-(\d+)-")
ETH_P_ALL = 3
SO_RCVBUFFORCE = 33
SOL_PACKET, PACKET_AUXDATA, PACKET_IGNORE_OUTGOING = 263, 8, 23
TP_STATUS_VLAN_VALID = 0x10
CLONE_NEWNET = 0x40000000
SIOCETHTOOL, ETHTOOL_STXCSUM, ETHTOOL_SGSO = 0x8946, 0x17, 0x24
RECEIVE_BUFFER = 16 << 20

_numbers = itertools.count(1)
_libc = ctypes.CDLL(None, use_errno=True)


def run(*command: str) -> None:
    """Run a command. If it fails, raise OSError with its error output."""
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise OSError(f"{' '.join(command)}: {done.stderr.strip()}")


def ip(*arguments: str) -> None:
    """Run `ip`."""
    run("ip", *arguments)


def in_namespace(name: str, call: Callable[[], _T]) -> _T:
    """Call a function in a new thread inside the network namespace. Its sockets stay in the namespace."""
    result: list[_T] = []
    failure: list[BaseException] = []

    def enter() -> None:
        try:
            with Path("/run/netns", name).open() as namespace:
                if _libc.setns(namespace.fileno(), CLONE_NEWNET) != 0:
                    raise OSError(ctypes.get_errno(), f"setns {name}")
            result.append(call())
        except BaseException as error:
            failure.append(error)

    thread = threading.Thread(target=enter)
    thread.start()
    thread.join()
    if failure:
        raise failure[0]
    return result[0]


def delete_leftovers() -> None:
    """Delete namespaces of test processes that were killed."""
    for path in Path("/run/netns").glob("rwt-*") if Path("/run/netns").exists() else ():
        if (owner := NAME.match(path.name)) and not Path("/proc", owner[1]).exists():
            ip("netns", "delete", path.name)


@contextmanager
def namespace(label: str) -> Iterator[str]:
    """Create a network namespace without IPv6, as IPv6 discovery is noise. Delete it at the end."""
    name = f"rwt-{os.getpid()}-{next(_numbers)}-{label}"
    ip("netns", "add", name)
    try:
        in_namespace(name, _without_ipv6)
        ip("-n", name, "link", "set", "lo", "up")
        yield name
    finally:
        ip("netns", "delete", name)


def _without_ipv6() -> None:
    for which in ("all", "default"):
        path = Path(f"/proc/sys/net/ipv6/conf/{which}/disable_ipv6")  # of the calling thread's namespace
        if path.exists():
            path.write_text("1")


def cut_in_kernel(interface: str) -> None:
    """Let the kernel cut super-packets and complete checksums, as for a receiver without offloads."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as control:
        for command in (ETHTOOL_SGSO, ETHTOOL_STXCSUM):
            value = ctypes.create_string_buffer(struct.pack("II", command, 0))
            request = struct.pack("16sP", interface.encode(), ctypes.addressof(value)).ljust(40, b"\0")
            fcntl.ioctl(control, SIOCETHTOOL, request)


def packet_socket(interface: str) -> socket.socket:
    """Return a raw socket that receives all arriving frames, but not its own frames."""
    raw = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, 0)
    raw.setsockopt(SOL_PACKET, PACKET_IGNORE_OUTGOING, 1)
    raw.setsockopt(SOL_PACKET, PACKET_AUXDATA, 1)
    raw.setsockopt(socket.SOL_SOCKET, SO_RCVBUFFORCE, RECEIVE_BUFFER)
    raw.bind((interface, ETH_P_ALL))
    raw.setblocking(False)
    return raw


def receive(raw: socket.socket) -> bytes | None:
    """Return a waiting frame or None. Restore a VLAN tag that the kernel has removed."""
    try:
        data, ancillary, _, _ = raw.recvmsg(1 << 17, 256)
    except BlockingIOError:
        return None
    for _level, _kind, payload in ancillary:
        status, _len, _snap, _mac, _net, tci, tpid = struct.unpack("IIIHHHH", payload[:20])
        if status & TP_STATUS_VLAN_VALID:
            return data[:12] + struct.pack(">HH", tpid or 0x8100, tci) + data[12:]
    return data
