# SPDX-License-Identifier: Apache-2.0
"""A Linux kernel image with rdma_rxe: the running system's image, or a download of Debian's package.

The package is never installed: its hooks could change the initramfs or the boot loader of the machine.
"""

from __future__ import annotations

import lzma
import os
import re
import shutil
import subprocess
import tarfile
from dataclasses import dataclass
from pathlib import Path

PACKAGE = "linux-image-amd64"  # depends on the image of today's kernel
# For a virtual machine that mounts this machine's files (9p over virtio).
WANTED = ("virtio_pci", "virtio_net", "crc32_generic", "ib_uverbs", "rdma_rxe", "9p", "9pnet_virtio")
DOWNLOAD_TIMEOUT_S = 180


class KernelMissing(Exception):
    """No kernel image with rdma_rxe is available. The message says why."""


@dataclass(frozen=True)
class Module:
    """A kernel module, uncompressed and ready to load."""

    name: str
    image: bytes


@dataclass(frozen=True)
class Kernel:
    """A kernel image, and the wanted modules with their dependencies, in the order of loading."""

    image: Path
    modules: tuple[Module, ...]


def find_kernel(cache: Path) -> Kernel:
    """Find a kernel on this machine or in `cache`, or download one. Raise KernelMissing if none exists."""
    for root in (Path("/"), *sorted(cache.glob("linux-image-*"))):
        kernel = _in_root(root)
        if kernel is not None:
            return kernel
    kernel = _in_root(_download(cache))
    if kernel is None:
        raise KernelMissing("Debian's kernel package lacks the modules: " + ", ".join(WANTED))
    return kernel


def _in_root(root: Path) -> Kernel | None:
    for image in sorted((root / "boot").glob("vmlinuz-*"), reverse=True):
        folder = root / "lib/modules" / image.name.removeprefix("vmlinuz-")
        files = {_module_name(path): path for path in folder.rglob("*.ko*")}
        if all(name in files for name in WANTED):
            return Kernel(image, tuple(_in_order(files)))
    return None


def _module_name(path: Path) -> str:
    return path.name.split(".")[0].replace("-", "_")


def _in_order(files: dict[str, Path]) -> list[Module]:
    """Return each module behind its dependencies, which its .modinfo section lists."""
    order: dict[str, Module] = {}

    def visit(name: str) -> None:
        if name in order or name not in files:  # a module without a file is built into the image
            return
        image = files[name].read_bytes()
        if files[name].suffix == ".xz":
            image = lzma.decompress(image)
        found = re.search(rb"\0depends=([^\0]*)\0", image)
        for needed in found[1].decode().split(",") if found and found[1] else []:
            visit(needed.replace("-", "_"))
        order[name] = Module(name, image)

    for name in WANTED:
        visit(name)
    return list(order.values())


def _download(cache: Path) -> Path:
    """Return the folder of a fresh download, named after the package."""
    for tool in ("apt-get", "apt-cache", "dpkg-deb"):
        if shutil.which(tool) is None:
            raise KernelMissing(f"no kernel with rdma_rxe installed, and no {tool} to download Debian's")
    depends = _run(["apt-cache", "depends", "--important", PACKAGE])
    found = re.search(r"Depends: (linux-image-\S+)", depends)
    if found is None:
        raise KernelMissing(f"apt-cache knows no {PACKAGE}: is there a package list (apt-get update)?")
    folder = cache / found[1]
    working = cache / f"{found[1]}.{os.getpid()}"
    working.mkdir(parents=True)
    try:
        _run(["apt-get", "download", "-q", found[1]], cwd=working)
        (package,) = working.glob("*.deb")
        _unpack(package, working)
        package.unlink()
        shutil.rmtree(folder, ignore_errors=True)  # of an older test with fewer modules
        working.rename(folder)
    finally:
        shutil.rmtree(working, ignore_errors=True)
    return folder


def _unpack(package: Path, folder: Path) -> None:
    """Unpack only the image and the folders that hold the modules: the whole package is 400 MB."""
    folders = (
        r"crypto|lib|net/(core|ipv4|ipv6|9p|bridge|llc|802)|fs/(9p|netfs|fscache|configfs)|arch/x86/crypto"
        r"|drivers/(net|virtio|infiniband/(core|sw/rxe))"
    )
    needed = re.compile(rf"\./(boot/vmlinuz-|.*/kernel/({folders})/[^/]+\.ko)")
    with (
        subprocess.Popen(["dpkg-deb", "--fsys-tarfile", package], stdout=subprocess.PIPE) as process,
        tarfile.open(fileobj=process.stdout, mode="r|") as archive,
    ):
        for member in archive:
            content = archive.extractfile(member) if needed.match(member.name) else None
            if content is not None:
                target = folder / member.name
                target.parent.mkdir(parents=True, exist_ok=True)
                target.write_bytes(content.read())
    if process.returncode != 0:
        raise KernelMissing(f"dpkg-deb cannot unpack {package.name}")


def _run(command: list[str], cwd: Path | None = None) -> str:
    try:
        done = subprocess.run(
            command, cwd=cwd, capture_output=True, text=True, timeout=DOWNLOAD_TIMEOUT_S, check=False
        )
    except subprocess.TimeoutExpired:
        raise KernelMissing(f"{' '.join(command)}: no end after {DOWNLOAD_TIMEOUT_S} s") from None
    if done.returncode != 0:
        raise KernelMissing(f"{' '.join(command)}: {done.stderr.strip()}")
    return done.stdout
