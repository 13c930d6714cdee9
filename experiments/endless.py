# SPDX-License-Identifier: Apache-2.0
"""A rank that makes calls until it is stopped, in spite of faults. The workers of fault experiments use it.

An error ends the communicator, but not the process. The process joins the job again, under the same name.
SIGUSR1 to rank 0 stops all ranks. An element of the tensor carries the request, so that all ranks see it in
the same result.
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

RETRY_S = 0.1  # between two attempts to join


@dataclass
class Signal:
    """Records whether a signal has been received."""

    received: bool = False

    @classmethod
    def listen(cls, number: signal.Signals) -> Signal:
        """Install a handler for a signal."""
        received = cls()
        signal.signal(number, received._take)
        return received

    def _take(self, *_: object) -> None:
        self.received = True


def join_and(series: Callable[[Communicator, Signal], None]) -> None:
    """Join and run a series of calls. Do so again after every error, until the series returns.

    The series gets the signal to stop, and shares rank 0's signal with the other ranks. The function emits
    the messages `joined`, `error` and `done`.
    """
    stop = Signal.listen(signal.SIGUSR1)
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
            _report(error)
            time.sleep(RETRY_S)


def _report(error: RailweaveError) -> None:
    emit(
        "error",
        rank=int(os.environ["RANK"]),
        at=time.monotonic(),
        kind=type(error).__name__,
        lost=error.rank if isinstance(error, PeerLost) else None,
        text=str(error),
    )
