# SPDX-License-Identifier: Apache-2.0
"""Compiled programs. The repository holds them compressed: NAME.json is stored as NAME.json.gz."""

from __future__ import annotations

import atexit
import functools
import gzip
import tempfile
from pathlib import Path


def unpacked(path: Path) -> Path:
    """Return the file. Decompress it first if only its compressed form exists."""
    return path if path.exists() else _made(path)


@functools.cache
def _made(path: Path) -> Path:
    file = _folder() / path.parent.name / path.name
    file.parent.mkdir(exist_ok=True)
    file.write_bytes(gzip.decompress(_packed(path).read_bytes()))
    return file


@functools.cache
def _folder() -> Path:
    """Return a folder that is deleted when this process ends."""
    folder = tempfile.TemporaryDirectory(prefix="railweave-programs-")
    atexit.register(folder.cleanup)
    return Path(folder.name)


def pack(*paths: Path) -> None:
    """Replace files by their compressed forms. Equal files compress to equal bytes, without name and time."""
    for path in paths:
        with _packed(path).open("wb") as file, gzip.GzipFile("", "wb", fileobj=file, mtime=0) as packed:
            packed.write(path.read_bytes())
        path.unlink()


def _packed(path: Path) -> Path:
    return path.with_name(f"{path.name}.gz")
