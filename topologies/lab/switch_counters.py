# SPDX-License-Identifier: Apache-2.0
"""Ask a controller for its switches' counters: `python -m railweave.topologies.lab.switch_counters ADDRESS`.

This is a separate program, because only processes inside the lab's network reach the controller.
"""

from __future__ import annotations

import json
import sys

import grpc

from railweave.v1 import controller_pb2 as pb
from railweave.v1 import controller_pb2_grpc as pb_grpc

ANSWER_S = 10.0


def ask(controller: str) -> dict[str, dict[str, int]]:
    """Return packets by plane and decision, summed over the plane's switches."""
    with grpc.insecure_channel(controller, options=[("grpc.enable_http_proxy", 0)]) as channel:
        stub = pb_grpc.ControllerStub(channel)  # type: ignore[no-untyped-call]
        answer = stub.GetSwitchCounters(pb.SwitchCountersRequest(), timeout=ANSWER_S)
    planes: dict[str, dict[str, int]] = {}
    for switch in answer.switches:
        counts = planes.setdefault(switch.plane, {})
        for name, packets in switch.packets.items():
            counts[name] = counts.get(name, 0) + packets
    return planes


if __name__ == "__main__":
    json.dump(ask(sys.argv[1]), sys.stdout)
