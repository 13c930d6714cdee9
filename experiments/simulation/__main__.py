# SPDX-License-Identifier: Apache-2.0
"""The process of a simulator: calls as a line of JSON on stdin, the result as one on stdout."""

from __future__ import annotations

import json
import os
import sys
import time
from pathlib import Path
from typing import Any

MODEL = Path(__file__).with_name("model.hpp")


def main() -> None:
    """Simulate the calls of each line."""
    os.environ["EXTRA_CLING_ARGS"] = "-O2"  # before the compiler is loaded
    import cppyy  # noqa: PLC0415
    from ns import ns as _  # noqa: F401, PLC0415 - loads ns-3

    cppyy.include(str(MODEL))
    model = cppyy.gbl.railweave_simulation
    for line in sys.stdin:
        begin = time.monotonic()
        simulation = model.Simulation()
        for call in json.loads(line):
            _add(simulation, model, call)
        found = {"seconds": simulation.run(), "events": simulation.events()}
        simulation.__destruct__()  # now: ns-3 has one simulation at a time
        print(json.dumps(found | {"wall_s": time.monotonic() - begin}), flush=True)


def _add(simulation: Any, model: Any, call: dict[str, Any]) -> None:
    fabric = model.Fabric()
    for name, value in call["fabric"].items():
        setattr(fabric, name, value)
    more = {
        "ring": (call["size_bytes"], call["parts"]),
        "composed": (call["ina"], call["size_bytes"], call["message_bytes"]),
    }.get(call["algorithm"], (call["size_bytes"],))
    getattr(simulation, call["algorithm"])(fabric, *more)


main()
