# SPDX-License-Identifier: Apache-2.0
"""A rank that reduces for ever, whatever dies: what workers of experiments with faults share.

An error ends the communicator, not the process: it joins the job again, under the same name. SIGUSR1 to rank
0 ends all: an element of the tensor carries the word, so that all ranks see it in the same result.
"""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable
from dataclasses import dataclass

import railweave
from railweave.experiments.messages import emit
from railweave.hosts.communicator import Communicator
from railweave.hosts.errors import InvalidOption, PeerLost, RailweaveError

AGAIN_S = 0.1  # between two attempts to join


@dataclass
class Signal:
    """Whether a signal has come."""

    received: bool = False

    @classmethod
    def by(cls, number: signal.Signals) -> Signal:
        """Listen for a signal from now on."""
        listening = cls()
        signal.signal(number, listening._take)
        return listening

    def _take(self, *_: object) -> None:
        self.received = True


def join_and(series: Callable[[Communicator, Signal], None]) -> None:
    """Join and run a series of calls, again after every error, until it returns.

    A series is given the word to stop, which rank 0 passes on. Tells `joined`, `error` and `done`.
    """
    stop = Signal.by(signal.SIGUSR1)
    while True:
        begin = time.monotonic()
        try:
            with railweave.init() as comm:
                emit("joined", rank=comm.rank, at=time.monotonic(), took=time.monotonic() - begin)
                series(comm, stop)
                emit("done", rank=comm.rank)
                return
        except InvalidOption:
            raise
        except RailweaveError as error:
            _tell(error)
            time.sleep(AGAIN_S)


def _tell(error: RailweaveError) -> None:
    emit(
        "error",
        rank=int(os.environ["RANK"]),
        at=time.monotonic(),
        kind=type(error).__name__,
        lost=error.rank if isinstance(error, PeerLost) else None,
        text=str(error),
    )
