# SPDX-License-Identifier: Apache-2.0
"""A rank that does a test's tasks: `python -m system.rxe.rank HOST:PORT RANK INTERFACE`.

Each task is a new job. The rank answers with a line of JSON.
"""

from __future__ import annotations

import json
import os
import signal
import socket
import sys
import time
from contextlib import suppress
from dataclasses import asdict
from itertools import product
from typing import Any

import numpy as np
from protocol.jobs import StaticMembership

from railweave.hosts.communicator import Communicator
from railweave.hosts.events import RailOffer
from railweave.hosts.options import Options, parse_rails

THE_TEST = "the test"  # in place of the controller's address
RESUMED_S = 60.0
SIZES = (1, 5, 1000, 100_003)
KINDS = (("float32", "sum"), ("int32", "max"), ("float64", "avg"), ("uint8", "min"), ("float16", "sum"))


class Line:
    """The connection to the meeting. Both sides send one JSON object per line."""

    def __init__(self, meeting: socket.socket) -> None:
        self._socket = meeting
        self._lines = meeting.makefile("r")

    def say(self, **what: Any) -> None:
        self._socket.sendall((json.dumps(what) + "\n").encode())

    def hear(self) -> dict[str, Any] | None:
        line = self._lines.readline()
        return dict(json.loads(line)) if line else None

    def close(self) -> None:
        with suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)

    def join(self, controller: str, **given: Any) -> StaticMembership:
        """Replace the join at a controller: the ranks meet through the test."""
        self.say(offers=[asdict(offer) for offer in given["rails"]])
        answer = self.hear()
        assert answer is not None
        members = {
            int(rank): [RailOffer(**offer) for offer in offers] for rank, offers in answer["members"].items()
        }
        return StaticMembership(members, {}, given["on_event"])


def values(rank: int, count: int, dtype: str) -> np.ndarray:
    """Return multiples of 3: sums and means over 1, 2 or 3 ranks are exact in any order and type."""
    return ((np.arange(count) + 7 * rank) % 27 * 3).astype(dtype)


def collectives(comm: Communicator) -> dict[str, Any]:
    """Run every collective on sizes for all algorithms, and compare each element of each result."""
    ranks, compared = range(comm.world_size), 0
    fold = {"sum": np.sum, "max": np.max, "min": np.min, "avg": np.mean}

    def check(got: np.ndarray, wanted: np.ndarray) -> None:
        nonlocal compared
        np.testing.assert_array_equal(got, wanted)
        compared += got.size

    for count, (dtype, op) in product(SIZES, KINDS):
        all_values = np.stack([values(rank, count, dtype) for rank in ranks])
        whole = fold[op](all_values, axis=0).astype(dtype)
        check(comm.all_reduce(all_values[comm.rank], op), whole)
        check(comm.all_gather(all_values[comm.rank]).reshape(comm.world_size, -1), all_values)
        root = count % comm.world_size
        check(comm.broadcast(all_values[comm.rank].copy(), root=root), all_values[root])
        reduced = comm.reduce(all_values[comm.rank], root=root, op=op)
        if comm.rank == root:
            check(reduced, whole)
        shards = np.stack([values(rank, count * comm.world_size, dtype) for rank in ranks])
        own = slice(comm.rank * count, (comm.rank + 1) * count)
        check(comm.reduce_scatter(shards[comm.rank], op), fold[op](shards, axis=0).astype(dtype)[own])
    comm.barrier()
    return {"compared": compared}


def killed(comm: Communicator) -> dict[str, Any]:
    """Kill the last rank. The other ranks return the error that they get."""
    comm.all_reduce(values(comm.rank, 1000, "int32"))
    if comm.rank == comm.world_size - 1:
        os.kill(os.getpid(), signal.SIGKILL)
    return failing(comm)


def failing(comm: Communicator) -> dict[str, Any]:
    """Call until a call fails, and return its error."""
    try:
        while True:
            comm.all_reduce(values(comm.rank, 100_000, "int32"))
    except Exception as error:
        return {"error": type(error).__name__, "text": str(error)}


def summed(comm: Communicator) -> dict[str, Any]:
    """Sum values that a switch can add, and values that are too small for it. Return the number of chunks."""
    chunks = 0
    for count, dtype in product((5, 1025, 100_003), ("int32", "float32", "float16")):
        all_values = [values(rank, count, dtype) for rank in range(comm.world_size)]
        total = np.sum([each.astype("float64") for each in all_values], axis=0)
        np.testing.assert_array_equal(comm.all_reduce(all_values[comm.rank]), total.astype(dtype))
        chunks += -(-count // 256) if all_values[0].nbytes > 4096 else 0
    comm.barrier()
    return {"chunks": chunks}


def resumed(comm: Communicator) -> dict[str, Any]:
    """Sum until the first rail has failed and carries data again. Return the bytes that it carried before."""
    carried, latest = 0, time.monotonic() + RESUMED_S
    while time.monotonic() < latest:
        count = 1 << 18
        total = sum(values(rank, count, "int32") for rank in range(comm.world_size))
        np.testing.assert_array_equal(comm.all_reduce(values(comm.rank, count, "int32")), total)
        rail = comm.stats().rails[0]
        if rail.incarnation > 0 and not carried:
            carried = rail.payload_bytes
        done = carried > 0 and rail.payload_bytes > carried + (1 << 20)
        if comm.all_reduce(np.array([done], np.int32), "min")[0]:
            return {"carried": carried}
    return {"carried": 0}


TASKS = {task.__name__: task for task in (collectives, killed, failing, summed, resumed)}


def serve(meeting: socket.socket, rank: int, interface: str) -> None:
    """Do tasks until the meeting ends, each in a child process, which may die."""
    line = Line(meeting)
    line.say(rank=rank)
    while (task := line.hear()) is not None:
        child = os.fork()
        if child == 0:
            carry_out(line, task, rank, interface)
            os._exit(0)
        if os.waitpid(child, 0)[1] != 0:
            line.say(result={"died": True})


def carry_out(line: Line, task: dict[str, Any], rank: int, interface: str) -> None:
    """Do a task as one rank of a job, and send the answer."""
    try:
        rails = parse_rails(task["rails"].replace("IF", interface))
        options = Options(rank, task["size"], rails, **{"controller": THE_TEST, **task["options"]})
        with Communicator(options, line.join if options.controller == THE_TEST else None) as comm:
            answer = TASKS[task["task"]](comm)
            answer["where"] = sorted({one.detail for one in comm.why() if one.used})
        line.say(result=answer)
    except Exception as error:
        line.say(result={"error": type(error).__name__, "text": str(error)})


if __name__ == "__main__":
    HOST, _, PORT = sys.argv[1].rpartition(":")
    serve(socket.create_connection((HOST, int(PORT))), int(sys.argv[2]), sys.argv[3])
