# SPDX-License-Identifier: Apache-2.0
"""A rank in its own process, which a test can stop and kill: `python -m system.lone_rank OPTIONS`.

It calls `sum_until`, like the other ranks, which are threads of the test.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
from collections.abc import Callable, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
from protocol.jobs import DEADLINE_S, StaticJob, StaticMembership
from system.namespaces import inside
from system.plane_network import PlaneNetwork

from railweave.hosts.communicator import Communicator
from railweave.hosts.events import RailOffer
from railweave.hosts.options import Options, parse_rails

ELEMENTS = 100_000


def sum_until(comm: Communicator, enough: Callable[[], bool]) -> int:
    """Sum and check until `enough` is true on a rank, and return the number of rounds.

    All ranks learn this from the same call, so they stop after the same round.
    """
    for round_ in range(sys.maxsize):
        if comm.all_reduce(np.array([enough()], np.int32), "max")[0]:
            return round_
        total = comm.all_reduce(np.full(ELEMENTS, comm.rank + round_, np.int32))
        ranks = comm.world_size
        assert np.all(total == ranks * (ranks - 1) // 2 + ranks * round_)
    return sys.maxsize


class LoneRank:
    """The process of one rank, on its host of a network. It joins a job whose other ranks are threads."""

    def __init__(self, network: PlaneNetwork, job: StaticJob, rank: int, **options: Any) -> None:
        given = {"rank": rank, "world_size": job.size, "rails": network.rails(rank), **options}
        with inside(network.at(rank)):
            self.process = subprocess.Popen(
                [sys.executable, "-P", "-m", "system.lone_rank", json.dumps(given)],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                text=True,
                env={**os.environ, "PYTHONPATH": str(Path(__file__).parents[1])},
            )
        self._joining = threading.Thread(target=self._join, args=(job, rank))
        self._joining.start()

    def _join(self, job: StaticJob, rank: int) -> None:
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        offers = [RailOffer(**offer) for offer in json.loads(self.process.stdout.readline())]
        membership = job.join(
            *("none",),
            **{"job": "default", "rank": rank, "size": job.size, "rails": offers, "deadline_s": DEADLINE_S},
            on_event=lambda event: None,
            decisions=lambda: (),
        )
        told = {of: [asdict(offer) for offer in theirs] for of, theirs in membership.members.items()}
        self.process.stdin.write(json.dumps(told) + "\n")
        self.process.stdin.flush()

    def signal(self, number: int) -> None:
        os.kill(self.process.pid, number)

    def close(self) -> None:
        self.process.kill()
        self.process.communicate()
        self._joining.join()


def _join_by_pipe(_: str, *, rails: Sequence[RailOffer], **__: Any) -> StaticMembership:
    print(json.dumps([asdict(rail) for rail in rails]), flush=True)
    told = json.loads(sys.stdin.readline())
    members = {int(rank): [RailOffer(**offer) for offer in offers] for rank, offers in told.items()}
    return StaticMembership(members, {}, lambda event: None)


def main() -> None:
    given = json.loads(sys.argv[1])
    options = Options(
        **{**given, "rails": parse_rails(given["rails"]), "controller": "none", "timeout_s": DEADLINE_S}
    )
    with Communicator(options, _join_by_pipe) as comm:
        sum_until(comm, lambda: False)


if __name__ == "__main__":
    main()
