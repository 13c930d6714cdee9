# SPDX-License-Identifier: Apache-2.0
"""Make the folder of a new algorithm: a copy of `sum` with another name, which works before any change."""

from __future__ import annotations

import shutil
from pathlib import Path

from railweave.sdk.errors import AlgorithmError
from railweave.sdk.library import OWN
from railweave.sdk.manifest import FILE

TEMPLATE = "sum"


def make(folder: Path) -> list[Path]:
    """Make the folder, which must not exist. Return its files."""
    if not folder.name.isidentifier():
        raise AlgorithmError(f"{folder.name!r}", "a name as of a Python module", "choose another name")
    if folder.exists():
        raise AlgorithmError(f"{folder} exists", "a new folder", "choose another name, or remove it")
    shutil.copytree(OWN / TEMPLATE, folder, ignore=shutil.ignore_patterns("__pycache__"))
    manifest = folder / FILE
    text = manifest.read_text(encoding="utf-8")
    manifest.write_text(text.replace(f'name = "{TEMPLATE}"', f'name = "{folder.name}"'), encoding="utf-8")
    return sorted(path for path in folder.rglob("*") if path.is_file())
