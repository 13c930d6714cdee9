# SPDX-License-Identifier: Apache-2.0
"""Virtual machines that run this checkout over rdma_rxe, and a meeting point for their ranks and ours."""

from __future__ import annotations

import os
import platform
import shutil
import socket
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from system.namespaces import inside

from .kernel import Kernel, KernelMissing, find_kernel
from .rank import Line

HERE = Path(__file__).parent
CACHE = Path(os.environ.get("XDG_CACHE_HOME", Path.home() / ".cache")) / "railweave"
HOST, PREFIX = "10.9.0.1", 24  # address on our side
TOOLS = ("qemu-system-x86_64", "busybox", "rdma", "ip", "setpriv", "ldd")
BOOT_TIMEOUT_S = 200.0  # emulated, with numpy to import: about 30 seconds on an idle machine
TASK_S = 100.0  # for any call
ANSWER_TIMEOUT_S = 2 * TASK_S


def kernel() -> Kernel:
    """Return a kernel for the machines. Skip the test if no such machine can run here."""
    if os.geteuid() != 0:
        pytest.skip("rxe test needs root, for a network namespace with a tap device")
    if platform.machine() != "x86_64":
        pytest.skip(f"rxe test has no kernel for {platform.machine()}")
    for tool in TOOLS:
        if find_program(tool) is None:
            pytest.skip(f"rxe test needs {tool}")
    if not [*Path("/usr/lib").glob("*/libibverbs/librxe-rdmav*.so")]:
        pytest.skip("rxe test needs ibverbs-providers")
    try:
        return find_kernel(CACHE)
    except KernelMissing as error:
        pytest.skip(f"rxe test has no kernel: {error}")


def find_program(name: str) -> str | None:
    """Return the path of a program, also from folders that only root's PATH has."""
    return shutil.which(name) or shutil.which(name, path="/usr/sbin:/sbin")


def build_initramfs(kernel: Kernel, folder: Path) -> Path:
    """Write an archive of the files for a machine's boot, before it mounts this machine's files."""
    root, archive, busybox = folder / "initramfs", folder / "initramfs.gz", find_program("busybox")
    assert busybox is not None
    for name in ("bin", "modules", "host", "proc", "sys", "dev"):
        (root / name).mkdir(parents=True)
    for source, name in ((HERE / "init_host", "init"), (busybox, "bin/busybox"), (busybox, "bin/sh")):
        shutil.copyfile(source, root / name)
        (root / name).chmod(0o755)
    for module in kernel.modules:
        (root / f"modules/{module.name}.ko").write_bytes(module.image)
    (root / "modules/order").write_text("".join(f"{module.name}.ko\n" for module in kernel.modules))
    pack = f"find . | {busybox} cpio -o -H newc -R 0:0 | gzip -1 > {archive}"
    subprocess.run(["sh", "-c", pack], cwd=root, check=True, stderr=subprocess.DEVNULL)
    return archive


@dataclass(frozen=True)
class Machine:
    """A machine on a tap device. It runs one rank."""

    tap: str
    mac: str
    address: str


class Meeting:
    """The connections of the ranks. It gives them tasks, and sends each rank the offers of the others."""

    def __init__(self, listener: socket.socket) -> None:
        self._listener = listener
        self._ranks: dict[int, Line] = {}

    @property
    def address(self) -> str:
        host, port = self._listener.getsockname()
        return f"{host}:{port}"

    def wait_for(self, count: int) -> None:
        """Wait until `count` ranks have connected. Raise TimeoutError if they are late."""
        self._listener.settimeout(BOOT_TIMEOUT_S)
        while len(self._ranks) < count:
            connection, _ = self._listener.accept()
            connection.settimeout(ANSWER_TIMEOUT_S)
            line = Line(connection)
            hello = line.hear()
            assert hello is not None
            self._ranks[hello["rank"]] = line

    def run(
        self, task: str, ranks: Sequence[int] | None = None, rails: str = "rdma@IF", **options: Any
    ) -> list[dict[str, Any]]:
        """Let the ranks do a task as one job, and return their answers in order.

        The answer of a rank that died is empty. With the option `controller`, the ranks meet at that address.
        """
        lines = [self._ranks[rank] for rank in (ranks or sorted(self._ranks))]
        for line in lines:
            line.say(task=task, size=len(lines), rails=rails, options={"timeout_s": TASK_S, **options})
        if "controller" not in options:
            self._tell_offers(lines)
        return [(line.hear() or {"result": {}})["result"] for line in lines]

    def _tell_offers(self, lines: Sequence[Line]) -> None:
        said = [line.hear() or {} for line in lines]
        if not all("offers" in one for one in said):
            raise AssertionError(f"not all ranks have opened their rails: {said}")
        for line in lines:
            line.say(members={rank: one["offers"] for rank, one in enumerate(said)})

    def close(self) -> None:
        """End the ranks, and so also the machines."""
        for line in self._ranks.values():
            line.close()
        self._listener.close()


@contextmanager
def meeting(namespace: int) -> Iterator[Meeting]:
    """Listen in the network namespace until the block ends."""
    with inside(namespace):
        made = Meeting(socket.create_server((HOST, 0)))
    try:
        yield made
    finally:
        made.close()


@contextmanager
def booted(
    kernel: Kernel,
    folder: Path,
    namespace: int,
    where: Meeting,
    machines: Sequence[Machine],
    others: int = 0,
) -> Iterator[None]:
    """Run the machines until the block ends. Files in `folder` get their consoles, and an error quotes them.

    `others` is the number of ranks that connect from outside the machines.
    """
    initramfs = build_initramfs(kernel, folder)
    with ExitStack() as stack:
        for rank, machine in enumerate(machines):
            log = folder / f"console{rank}"
            stack.enter_context(_running(kernel, initramfs, namespace, where, machine, rank, log))
        try:
            where.wait_for(len(machines) + others)
        except TimeoutError:
            consoles = [log.read_text(errors="replace")[-2000:] for log in sorted(folder.glob("console*"))]
            raise RuntimeError(f"machines have not come up in {BOOT_TIMEOUT_S} s: {consoles}") from None
        yield


@contextmanager
def _running(
    kernel: Kernel, initramfs: Path, namespace: int, where: Meeting, machine: Machine, rank: int, log: Path
) -> Iterator[None]:
    said = {
        "address": f"{machine.address}/{PREFIX}",
        "python": sys.executable,
        "tests": HERE.parents[1],
        "meeting": where.address,
        "rank": rank,
    }
    # On a busy machine, the kernel's check of its timer would fail.
    append = "console=ttyS0 quiet panic=-1 no_timer_check "
    append += " ".join(f"rxe_{name}={what}" for name, what in said.items())
    command = [
        *("setpriv", "--pdeathsig", "KILL"),  # however this process ends, the machine ends with it
        *("qemu-system-x86_64", "-accel", "tcg", "-cpu", "Westmere", "-m", "1024", "-nodefaults"),
        *("-no-reboot", "-display", "none", "-serial", f"file:{log}", "-kernel", str(kernel.image)),
        *("-initrd", str(initramfs), "-append", append),
        *("-fsdev", "local,id=root,path=/,security_model=none,readonly=on,multidevs=remap"),
        *("-device", "virtio-9p-pci,fsdev=root,mount_tag=root"),
        *("-netdev", f"tap,id=net,ifname={machine.tap},script=no,downscript=no"),
        *("-device", f"virtio-net-pci,netdev=net,mac={machine.mac},romfile="),
    ]
    with inside(namespace):
        process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        yield
    finally:
        process.terminate()
        with suppress(subprocess.TimeoutExpired):
            process.wait(5)
        process.kill()
        process.wait()
