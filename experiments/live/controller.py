# SPDX-License-Identifier: Apache-2.0
"""Save the controller's answers in a file: `python -m railweave.experiments.live.controller ADDRESS FILE`.

This is a separate program, because the controller can be reached only from inside its network. It replaces
the file every second. The file has one JSON object with the last known `switches` and `trees`. The field
`problem` has the error of the last request, or is empty.
"""

from __future__ import annotations

import itertools
import json
import sys
import threading
from pathlib import Path
from typing import Any

import grpc

from railweave.v1 import controller_pb2 as pb
from railweave.v1 import controller_pb2_grpc as pb_grpc

EVERY_S = 1.0
SWITCHES_EVERY = 4  # rounds per request for the switches, for which the controller must read every switch
ANSWER_S = 3.0
SWITCHES_ANSWER_S = 15.0  # the controller waits 10 s for a switch
TREE_FIELDS = ("tree", "group", "root", "slots", "moves", "paused")


def trees(stub: Any) -> list[dict[str, Any]]:
    """Return the trees of all jobs."""
    report = stub.Explain(pb.ExplainRequest(), timeout=ANSWER_S)
    return [
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
    ]


def keep(controller: str, file: Path) -> None:
    """Replace the file every EVERY_S seconds, until this process is killed."""
    new = file.with_suffix(".new")
    options = [("grpc.enable_http_proxy", 0), ("grpc.max_reconnect_backoff_ms", 1000)]
    placed: list[dict[str, Any]] = []
    switches: list[dict[str, Any]] = []
    asked = None  # pending request for the switches: a frozen switch must not delay the rest
    with grpc.insecure_channel(controller, options=options) as channel:
        stub = pb_grpc.ControllerStub(channel)  # type: ignore[no-untyped-call]
        for number in itertools.count():
            if asked is None and number % SWITCHES_EVERY == 0:
                asked = stub.GetSwitchCounters.future(pb.SwitchCountersRequest(), timeout=SWITCHES_ANSWER_S)
            try:
                placed, problem = trees(stub), ""
            except grpc.RpcError as error:
                problem = str(error.details())
            if asked is not None and asked.done():
                if asked.code() is grpc.StatusCode.OK:
                    switches = [
                        {"name": s.name, "slots": s.slots, "used": s.slots_used, "problem": s.problem}
                        for s in asked.result().switches
                    ]
                asked = None
            new.write_text(json.dumps({"problem": problem, "trees": placed, "switches": switches}))
            new.replace(file)
            threading.Event().wait(EVERY_S)


if __name__ == "__main__":
    keep(sys.argv[1], Path(sys.argv[2]))
