# SPDX-License-Identifier: Apache-2.0
"""A rank that is a function: `python -m railweave.experiments.program.worker WHERE NAME ARGUMENTS`.

The rank imports the file or module WHERE. It calls the function NAME with the communicator and ARGUMENTS, a
JSON array, and prints the returned value.
"""

from __future__ import annotations

import importlib
import importlib.util
import inspect
import json
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import railweave
from railweave.experiments.errors import OptionError
from railweave.experiments.hosts import module_command
from railweave.experiments.messages import emit, run_worker

WORKER = "railweave.experiments.program.worker"


def command_of(function: Callable[..., Any], *arguments: Any) -> list[str]:
    """Return the command of a rank. Raise OptionError for a function that other processes cannot find."""
    file = inspect.getsourcefile(function)
    name = function.__qualname__
    if file is None or not Path(file).exists() or "." in name:
        raise OptionError(
            f"worker {name!r}",
            "a function at the top level of a file, which every host imports",
            "move it there",
        )
    ours = function.__module__.startswith("railweave.")
    words = (function.__module__ if ours else str(Path(file).resolve()), name, json.dumps(arguments))
    return module_command(WORKER, *words)


def work() -> None:
    """Call the function that the command line names."""
    where, name, text = sys.argv[1:]
    module = _of_file(Path(where)) if where.startswith("/") else importlib.import_module(where)
    function, arguments = getattr(module, name), json.loads(text)
    with railweave.init() as comm:
        value = function(comm, *arguments)
    emit("returned", rank=comm.rank, value=value)


def _of_file(file: Path) -> ModuleType:
    sys.path.insert(0, str(file.parent))
    spec = importlib.util.spec_from_file_location(file.stem, file)
    if spec is None or spec.loader is None:
        raise railweave.InvalidOption(f"{file}", "a Python file", "name a file that ends in .py")
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


if __name__ == "__main__":
    sys.exit(run_worker(work))
