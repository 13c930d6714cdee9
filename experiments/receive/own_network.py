# SPDX-License-Identifier: Apache-2.0
"""A network of its own for a thread, with a loopback whose packets are received by one CPU, all the way.

Elsewhere the CPU that sends on loopback also does the receiver's IP and UDP. Receive packet steering leaves
that to the CPU that is named here, as the interrupt of a network card does.
"""

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


def missing() -> str:
    """Return what this machine lacks; empty if nothing."""
    if os.geteuid() != 0:
        return "a network of its own needs root"
    if len(os.sched_getaffinity(0)) < 2:
        return "one CPU receives and another sends, but there is only one"
    return "" if STEERING.exists() else f"no receive packet steering: this kernel has no {STEERING}"


def run(cpu: int, call: Callable[[], T]) -> T:
    """Call in a thread that is alone in such a network and runs on this CPU. Nothing is left of it."""

    def enter() -> T:
        if ctypes.CDLL(None, use_errno=True).unshare(CLONE_NEWNS | CLONE_NEWNET) != 0:
            raise OSError(ctypes.get_errno(), "cannot make a network namespace")
        for command in SET_UP:
            subprocess.run(command, check=True)
        STEERING.write_text(mask(cpu))
        os.sched_setaffinity(0, {cpu})
        return call()

    with ThreadPoolExecutor(1) as thread:
        return thread.submit(enter).result()


def mask(cpu: int) -> str:
    """Return the set of one CPU as sysfs reads it: words of 32 bits, in hexadecimal.

    >>> mask(3), mask(33)
    ('8', '2,00000000')
    """
    return f"{1 << cpu % 32:x}" + ",00000000" * (cpu // 32)
