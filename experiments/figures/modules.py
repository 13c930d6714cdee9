# SPDX-License-Identifier: Apache-2.0
"""Python modules that a figure's file names: experiments, and plots of your own."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, TypeAlias

from railweave.experiments.errors import OptionError

RUNS = Path(__file__).parent / "runs"
# An experiment is a function `measure(options, out, on_phase)` that returns the numbers of each record.
Options: TypeAlias = Mapping[str, Any]
OnPhase: TypeAlias = Callable[[str], None]
Numbers: TypeAlias = dict[str, Any]


def load(name: str, folder: Path, function: str) -> Callable[..., Any]:
    """Return a function of NAME.py in a figure's folder, or among those of the papers' figures.

    Raises OptionError if the file or the function is missing.
    """
    path = next((path for path in (folder / f"{name}.py", RUNS / f"{name}.py") if path.is_file()), None)
    if path is None:
        raise OptionError(f"run = {name!r}", f"the file {folder / name}.py", "write it, or correct the name")
    spec = importlib.util.spec_from_file_location(f"railweave_figure_{name}", path)
    assert spec is not None  # noqa: S101 - the suffix says that it is Python
    assert spec.loader is not None  # noqa: S101
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    if not hasattr(module, function):
        raise OptionError(f"{path}: no function {function}", f"def {function}(…)", "write it")
    found: Callable[..., Any] = getattr(module, function)
    return found
