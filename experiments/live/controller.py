# SPDX-License-Identifier: Apache-2.0
"""Keeps what the controller says in a file: `python -m railweave.experiments.live.controller ADDRESS FILE`.

A program of its own, because the controller is reached from inside its network only. The file is replaced
every second: one JSON object with `switches` and `trees`, or with the `problem` why they are not known.
"""

from __future__ import annotations

import json
import sys
import threading
from pathlib import Path
from typing import Any

import grpc

from railweave.v1 import controller_pb2 as pb
from railweave.v1 import controller_pb2_grpc as pb_grpc

EVERY_S = 1.0
ANSWER_S = 3.0
TREE_FIELDS = ("tree", "group", "root", "slots", "moves", "paused")


def ask(stub: Any) -> dict[str, Any]:
    """Return what the controller says now."""
    try:
        report = stub.Explain(pb.ExplainRequest(), timeout=ANSWER_S)
        counters = stub.GetSwitchCounters(pb.SwitchCountersRequest(), timeout=ANSWER_S)
    except grpc.RpcError as error:
        return {"problem": str(error.details()), "switches": [], "trees": []}
    return {
        "problem": "",
        "switches": [
            {"name": s.name, "slots": s.slots, "used": s.slots_used, "problem": s.problem}
            for s in counters.switches
        ],
        "trees": [
            {
                "job": job.job,
                "rail": rail.rail,
                "plane": rail.plane,
                **{name: getattr(tree, name) for name in TREE_FIELDS},
                "switches": list(tree.switches),
            }
            for job in report.jobs
            for rail in job.rails
            for tree in rail.trees
        ],
    }


def keep(controller: str, file: Path) -> None:
    """Replace the file every EVERY_S, until this process is ended."""
    new = file.with_suffix(".new")
    options = [("grpc.enable_http_proxy", 0), ("grpc.max_reconnect_backoff_ms", 1000)]
    with grpc.insecure_channel(controller, options=options) as channel:
        stub = pb_grpc.ControllerStub(channel)  # type: ignore[no-untyped-call]
        while True:
            new.write_text(json.dumps(ask(stub)))
            new.replace(file)
            threading.Event().wait(EVERY_S)


if __name__ == "__main__":
    keep(sys.argv[1], Path(sys.argv[2]))
