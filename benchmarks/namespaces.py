# SPDX-License-Identifier: Apache-2.0
"""Call functions inside a network namespace, in a thread that enters it."""

from __future__ import annotations

import ctypes
import os
import subprocess
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TypeVar

CLONE_NEWNS, CLONE_NEWNET = 0x00020000, 0x40000000
STEERING = Path("/sys/class/net/lo/queues/rx-0/rps_cpus")
SET_UP = (
    ("mount", "--make-rprivate", "/"),
    ("mount", "-t", "sysfs", "sysfs", "/sys"),  # the one that shows this network's loopback
    ("ip", "link", "set", "lo", "up"),
)

T = TypeVar("T")
_libc = ctypes.CDLL(None, use_errno=True)


def missing() -> str:
    """Return why `on_own_loopback` cannot run here; empty if it can."""
    if os.geteuid() != 0:
        return "a network namespace needs root"
    if len(os.sched_getaffinity(0)) < 2:
        return "one CPU receives and another sends, but there is only one"
    return "" if STEERING.exists() else f"no receive packet steering: this kernel has no {STEERING}"


def in_namespace_of(pid: int, call: Callable[[], T]) -> T:
    """Call in the network namespace of a process. Sockets that `call` makes stay there."""

    def enter() -> T:
        with Path(f"/proc/{pid}/ns/net").open() as namespace:
            _check(_libc.setns(namespace.fileno(), CLONE_NEWNET))
        return call()

    return _in_thread(enter)


def on_own_loopback(cpu: int, call: Callable[[], T]) -> T:
    """Call on one CPU, in a new namespace whose loopback packets are received by this CPU alone.

    On an ordinary loopback the CPU that sends also does the receiver's IP and UDP. Receive packet steering
    leaves this work to the named CPU, as the interrupt of a network card does.
    """

    def enter() -> T:
        _check(_libc.unshare(CLONE_NEWNS | CLONE_NEWNET))
        for command in SET_UP:
            subprocess.run(command, check=True)
        STEERING.write_text(mask(cpu))
        os.sched_setaffinity(0, {cpu})
        return call()

    return _in_thread(enter)


def mask(cpu: int) -> str:
    """Return the set of one CPU as sysfs reads it: words of 32 bits, in hexadecimal.

    >>> mask(3), mask(33)
    ('8', '2,00000000')
    """
    return f"{1 << cpu % 32:x}" + ",00000000" * (cpu // 32)


def _in_thread(call: Callable[[], T]) -> T:
    with ThreadPoolExecutor(1) as thread:
        return thread.submit(call).result()


def _check(status: int) -> None:
    if status != 0:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
