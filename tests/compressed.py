# SPDX-License-Identifier: Apache-2.0
"""Compiled programs, which the repository holds compressed: NAME.json lies there as NAME.json.gz."""

from __future__ import annotations

import atexit
import functools
import gzip
import tempfile
from pathlib import Path


def unpacked(path: Path) -> Path:
    """Return the file, which is made from its compressed form if only that is there."""
    return path if path.exists() else _made(path)


@functools.cache
def _made(path: Path) -> Path:
    file = _folder() / path.parent.name / path.name
    file.parent.mkdir(exist_ok=True)
    file.write_bytes(gzip.decompress(_packed(path).read_bytes()))
    return file


@functools.cache
def _folder() -> Path:
    """Return a folder that ends with this process."""
    folder = tempfile.TemporaryDirectory(prefix="railweave-programs-")
    atexit.register(folder.cleanup)
    return Path(folder.name)


def pack(*paths: Path) -> None:
    """Replace files by their compressed forms. These hold no name and no time: equal files are equal."""
    for path in paths:
        with _packed(path).open("wb") as file, gzip.GzipFile("", "wb", fileobj=file, mtime=0) as packed:
            packed.write(path.read_bytes())
        path.unlink()


def _packed(path: Path) -> Path:
    return path.with_name(f"{path.name}.gz")
