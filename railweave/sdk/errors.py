# SPDX-License-Identifier: Apache-2.0
"""Errors of algorithms."""

from __future__ import annotations

from pathlib import Path
from traceback import extract_tb
from typing import ClassVar

from railweave.errors import USAGE, UserError


class AlgorithmError(UserError):
    """An algorithm's folder has a mistake, or its program and its control do not fit together."""

    status: ClassVar[int] = USAGE


def place(error: Exception, folder: Path) -> str:
    """Return the last line of an algorithm's own files in which an error was raised; '' if there is none."""
    found = [frame for frame in extract_tb(error.__traceback__) if Path(frame.filename).parent == folder]
    return f" ({Path(found[-1].filename).name}, line {found[-1].lineno})" if found else ""
