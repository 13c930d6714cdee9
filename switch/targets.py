# SPDX-License-Identifier: Apache-2.0
"""The switch targets that can run a compiled program, and how each is started."""

from __future__ import annotations

import importlib.util
import shutil
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol


class Target(Protocol):
    """A program that moves packets between interfaces and serves P4Runtime."""

    @property
    def name(self) -> str:
        """Its name in options."""
        ...

    def missing(self) -> str | None:
        """The reason why it cannot run on this machine; None if it can."""
        ...

    def command(
        self, interfaces: Mapping[int, str], grpc: str, device_id: int, arguments: Sequence[str] = ()
    ) -> list[str]:
        """The command that starts it: ports by number, the address to serve P4Runtime on, the device's id.

        `arguments` are further ones of `railweave switch`, such as --impair and --pcap.
        It prints a line that begins with `ready` once it serves, and ends on SIGINT or SIGTERM.
        """
        ...


def _command(
    target: str, interfaces: Mapping[int, str], grpc: str, device_id: int, arguments: Sequence[str]
) -> list[str]:
    """`railweave switch`, without the imports of the other commands."""
    command = [sys.executable, "-m", "railweave.switch", "--target", target]
    command += ["--grpc", grpc, "--device-id", str(device_id)]
    for port, interface in interfaces.items():
        command += ["--interface", f"{port}@{interface}"]
    return [*command, *arguments]


@dataclass(frozen=True)
class Embedded:
    """This project's own engine."""

    name: str = "embedded"

    def missing(self) -> str | None:
        """Only the native module is needed."""
        if importlib.util.find_spec("railweave._native") is None:
            return "railweave's native module is not built"
        return None

    def command(
        self, interfaces: Mapping[int, str], grpc: str, device_id: int, arguments: Sequence[str] = ()
    ) -> list[str]:
        """The daemon of this package."""
        return _command(self.name, interfaces, grpc, device_id, arguments)


@dataclass(frozen=True)
class Bmv2:
    """The reference software switch (p4lang/behavioral-model)."""

    name: str = "bmv2"
    program: str = "simple_switch_grpc"

    def missing(self) -> str | None:
        """Its gRPC server must be installed."""
        if shutil.which(self.program) is None:
            return f"{self.program} is not on PATH (https://github.com/p4lang/behavioral-model)"
        return None

    def command(
        self, interfaces: Mapping[int, str], grpc: str, device_id: int, arguments: Sequence[str] = ()
    ) -> list[str]:
        """BMv2 under a parent process that reports when it is ready."""
        return _command(self.name, interfaces, grpc, device_id, arguments)


TARGETS: dict[str, Target] = {target.name: target for target in (Embedded(), Bmv2())}
