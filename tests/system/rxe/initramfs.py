# SPDX-License-Identifier: Apache-2.0
"""An initial RAM file system as a value: it takes paths and contents, and makes a cpio archive (newc)."""

from __future__ import annotations

import gzip
import re
import shutil
import subprocess
from pathlib import Path, PurePosixPath

from .kernel import Kernel

DIRECTORY, REGULAR = 0o040755, 0o100755


class Initramfs:
    """A collection of files. All are executable and belong to root."""

    def __init__(self) -> None:
        self._files: dict[str, bytes] = {}

    def add(self, path: str, content: bytes) -> None:
        """Put `content` at the absolute `path`."""
        self._files[path.lstrip("/")] = content

    def add_program(self, path: str, source: Path) -> None:
        """Put a program at the absolute `path`, and its shared libraries at the paths where they are here."""
        self.add(path, source.read_bytes())
        listed = subprocess.run(["ldd", source], capture_output=True, text=True, check=False).stdout
        for library in re.findall(r"(/\S+) \(0x", listed):
            self.add(library, Path(library).read_bytes())

    def write(self, kernel: Kernel, folder: Path) -> Path:
        """Write the archive with the kernel's modules, and return its path."""
        for module in kernel.modules:
            self.add(f"/modules/{module.name}.ko", module.image)
        self.add("/modules/order", "".join(f"{module.name}.ko\n" for module in kernel.modules).encode())
        archive = folder / "initramfs.gz"
        archive.write_bytes(self.archive())
        return archive

    def archive(self) -> bytes:
        """Return the compressed archive."""
        folders = {str(parent) for path in self._files for parent in PurePosixPath(path).parents} - {"."}
        entries = [(path, DIRECTORY, b"") for path in sorted(folders | {"proc", "sys", "dev"})]
        entries += [(path, REGULAR, content) for path, content in self._files.items()]
        body = b"".join(_entry(number, *entry) for number, entry in enumerate(entries, 1))
        return gzip.compress(body + _entry(0, "TRAILER!!!", 0, b""), compresslevel=1)


def _entry(inode: int, path: str, mode: int, content: bytes) -> bytes:
    name = path.encode() + b"\0"
    fields = (inode, mode, 0, 0, 1, 0, len(content), 0, 0, 0, 0, len(name), 0)
    header = b"070701" + b"".join(b"%08X" % field for field in fields) + name
    return _padded(header) + _padded(content)


def _padded(data: bytes) -> bytes:
    return data + b"\0" * (-len(data) % 4)


def find_program(name: str) -> Path | None:
    """Return the path of a program, also from folders that only root's PATH has."""
    found = shutil.which(name) or shutil.which(name, path="/usr/sbin:/sbin")
    return Path(found) if found else None
