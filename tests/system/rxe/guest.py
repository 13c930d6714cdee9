# SPDX-License-Identifier: Apache-2.0
"""A virtual machine with rdma_rxe and our verbs peer, on a tap device in a separate network namespace."""

from __future__ import annotations

import os
import platform
import socket
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from system.namespaces import inside, ip, namespace

from railweave._native.roce import Endpoint

from .initramfs import Initramfs, find_program
from .kernel import Kernel

HERE = Path(__file__).parent
HOST, GUEST, PREFIX = "10.9.0.1", "10.9.0.2", 24
GUEST_MAC = "52:54:00:09:00:02"
TAP, BRIDGE, PORT, NIC = "tap0", "br0", "port0", "nic0"  # machine - bridge - our side
BOOT_TIMEOUT_S = 90.0  # emulated: about five seconds on an idle machine
ANSWER_TIMEOUT_S = 150.0
TOOLS = ("qemu-system-x86_64", "busybox", "rdma", "ip", "setpriv", "gcc", "ldd")


def missing() -> str | None:
    """Return the reason why no such machine can run here, or None."""
    if os.geteuid() != 0:
        return "rxe test needs root, for a network namespace with a tap device"
    if platform.machine() != "x86_64":
        return f"rxe test has no kernel for {platform.machine()}"
    for tool in TOOLS:
        if find_program(tool) is None:
            return f"rxe test needs {tool}"
    if not Path("/usr/include/infiniband/verbs.h").exists():
        return "rxe test needs libibverbs-dev"
    if _rxe_provider() is None:
        return "rxe test needs ibverbs-providers"
    return None


def _rxe_provider() -> Path | None:
    return next(Path("/usr/lib").glob("*/libibverbs/librxe-rdmav*.so"), None)


def build_initramfs(kernel: Kernel, folder: Path) -> Path:
    """Write an archive with everything that the machine needs, and return its path."""
    peer = folder / "peer"
    subprocess.run(["gcc", "-O2", "-o", peer, HERE / "peer.c", "-libverbs"], check=True)
    files = Initramfs()
    files.add("/init", (HERE / "init").read_bytes())
    for program, file in (
        ("/bin/peer", peer),
        ("/bin/rdma", find_program("rdma")),
        ("/bin/busybox", find_program("busybox")),
    ):
        assert file is not None
        files.add_program(program, file)
    files.add("/bin/sh", (find_program("busybox") or peer).read_bytes())
    provider = _rxe_provider()
    assert provider is not None
    files.add_program(str(provider), provider)
    files.add("/etc/libibverbs.d/rxe.driver", b"driver rxe\n")
    return files.write(kernel, folder)


@contextmanager
def network() -> Iterator[int]:
    """Make a network namespace with NIC, bridge, and the machine's tap."""
    with namespace() as descriptor:
        with inside(descriptor):
            _lay_links()
        yield descriptor


def _lay_links() -> None:
    ip("tuntap", "add", TAP, "mode", "tap")
    ip("link", "add", BRIDGE, "type", "bridge")
    ip("link", "add", NIC, "type", "veth", "peer", "name", PORT)
    ip("link", "set", BRIDGE, "arp", "off")  # else the bridge would answer for our side's address
    ip("address", "add", f"{HOST}/{PREFIX}", "dev", NIC)
    for port in (TAP, PORT):
        ip("link", "set", port, "master", BRIDGE)
    for device in (TAP, PORT, BRIDGE, NIC):
        ip("link", "set", device, "up")


@dataclass(frozen=True)
class Place:
    """The place of a machine on the network."""

    tap: str = TAP
    mac: str = GUEST_MAC
    address: str = GUEST


@contextmanager
def boot(
    kernel: Kernel, initramfs: Path, namespace: int, log: Path, place: Place = Place()
) -> Iterator[Guest]:
    """Run the machine until the block ends. Its console goes to `log`, and an error quotes it."""
    with inside(namespace):
        listener = socket.create_server((HOST, 0))
    port = listener.getsockname()[1]
    append = "console=ttyS0 quiet panic=-1 "
    append += f"rxe_address={place.address}/{PREFIX} rxe_control={HOST} rxe_port={port}"
    command = [
        *("setpriv", "--pdeathsig", "KILL"),  # however this process ends, the machine ends with it
        *("qemu-system-x86_64", "-accel", "tcg", "-m", "512", "-nodefaults"),
        *("-no-reboot", "-display", "none", "-serial", f"file:{log}", "-kernel", str(kernel.image)),
        *("-initrd", str(initramfs), "-append", append),
        *("-netdev", f"tap,id=net,ifname={place.tap},script=no,downscript=no"),
        *("-device", f"virtio-net-pci,netdev=net,mac={place.mac},romfile="),
    ]
    with inside(namespace):
        process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        listener.settimeout(BOOT_TIMEOUT_S)
        try:
            control, _ = listener.accept()
        except TimeoutError:
            tail = log.read_text(errors="replace")[-2000:] if log.exists() else ""
            raise RuntimeError(
                f"the machine has not come up in {BOOT_TIMEOUT_S} s; its console:\n{tail}"
            ) from None
        with control, control.makefile("r") as answers:
            yield Guest(control, answers)
    finally:
        listener.close()
        process.terminate()
        with suppress(subprocess.TimeoutExpired):
            process.wait(5)
        process.kill()
        process.wait()


class Guest:
    """The peer program at the other end of its control connection."""

    def __init__(self, control: socket.socket, answers: IO[str]) -> None:
        self._control = control
        self._answers = answers
        control.settimeout(ANSWER_TIMEOUT_S)
        hello, address, rkey, size = answers.readline().split()
        assert hello == "hello"
        self.address, self.rkey, self.size = int(address), int(rkey), int(size)

    def start(self, *words: object) -> None:
        """Give an order without waiting for the answer."""
        self._control.sendall((" ".join(map(str, words)) + "\n").encode())

    def answer(self) -> str:
        """Return the answer to the last order."""
        return self._answers.readline().strip()

    def order(self, *words: object) -> str:
        """Give an order that needs nothing from our side, and return its answer."""
        self.start(*words)
        return self.answer()

    def order_while_serving(self, endpoint: Endpoint, *words: object) -> str:
        """Give an order that moves data, and serve `endpoint` until the answer comes."""
        self.start(*words)
        return self.answer_while_serving(endpoint)

    def answer_while_serving(self, endpoint: Endpoint) -> str:
        """Serve `endpoint` until the answer to the last order comes, and return this answer."""
        self._control.setblocking(False)
        try:
            while True:
                endpoint.step(2_000_000)
                with suppress(BlockingIOError):
                    self._control.recv(1, socket.MSG_PEEK)
                    break
        finally:
            self._control.settimeout(ANSWER_TIMEOUT_S)
        return self.answer()
