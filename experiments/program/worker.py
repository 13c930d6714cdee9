# SPDX-License-Identifier: Apache-2.0
"""One rank of a job of `railweave.lab`: `python -m railweave.experiments.program.worker FILE NAME ARGUMENTS`.

Imports the file, calls the function of that name with the communicator and the arguments, a JSON array, and
prints what it returns.
"""

from __future__ import annotations

import importlib.util
import json
import sys
from pathlib import Path

import railweave
from railweave.experiments.messages import emit, run_worker


def work() -> None:
    """Call the function."""
    file, name, arguments = sys.argv[1:]
    sys.path.insert(0, str(Path(file).parent))
    spec = importlib.util.spec_from_file_location(Path(file).stem, file)
    if spec is None or spec.loader is None:
        raise railweave.InvalidOption(f"{file} is no Python file")
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    with railweave.init() as comm:
        value = getattr(module, name)(comm, *json.loads(arguments))
    emit("returned", rank=comm.rank, value=value)


if __name__ == "__main__":
    sys.exit(run_worker(work))
