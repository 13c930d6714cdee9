# SPDX-License-Identifier: Apache-2.0
"""The switch targets that can run a compiled program, and how each is started."""

from __future__ import annotations

import importlib.util
import shutil
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from railweave.switch import simple_switch_grpc


@dataclass(frozen=True)
class Target:
    """A program that moves packets between interfaces and serves P4Runtime."""

    name: str  # in options
    missing: Callable[[], str | None]  # the reason why it cannot run on this machine; None if it can
    lanes: int | None = None  # the most that it can put into the answer to a packet without lanes

    def command(
        self, interfaces: Mapping[int, str], grpc: str, device_id: int, arguments: Sequence[str] = ()
    ) -> list[str]:
        """Return the command of `railweave switch`, without the imports of the other commands.

        Ports by number, the address to serve P4Runtime on, the device's id, and further `arguments`, such as
        --impair and --pcap. It prints a line that begins with `ready` once it serves, and ends on SIGINT or
        SIGTERM.
        """
        command = [sys.executable, "-m", "railweave.switch", "--target", self.name]
        command += ["--grpc", grpc, "--device-id", str(device_id)]
        for port, interface in interfaces.items():
            command += ["--interface", f"{port}@{interface}"]
        return [*command, *arguments]


def _embedded_missing() -> str | None:
    found = importlib.util.find_spec("railweave._native")
    return None if found else "railweave's native module is not built"


def _bmv2_missing() -> str | None:
    """Return why BMv2 cannot run here; None if its gRPC server is installed."""
    program = "simple_switch_grpc"
    found = shutil.which(program)
    if found is None:
        return f"{program} is not on PATH (https://github.com/p4lang/behavioral-model)"
    if Path(found).resolve().name == simple_switch_grpc.NAME:
        return f"{found} is a link to railweave's own switch"
    return None


EMBEDDED = Target("embedded", _embedded_missing)  # this project's own engine
# The reference software switch (p4lang/behavioral-model). It lets a packet grow by 512 bytes.
BMV2 = Target("bmv2", _bmv2_missing, lanes=64)
TARGETS = {target.name: target for target in (EMBEDDED, BMV2)}
