# SPDX-License-Identifier: Apache-2.0
"""One rank that sums for ever, whatever dies: `python -m railweave.experiments.faults.worker`.

Sums int32 tensors that change from call to call, so that a result left over from another call is wrong in
every element. An error ends the communicator, not the process: it joins the job again, under the same name.
SIGUSR1 to rank 0 ends all: element 0 carries the word, so that all ranks see it in the same result.
"""

from __future__ import annotations

import argparse
import os
import signal
import sys
import time
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from railweave.experiments.messages import emit, run_worker
from railweave.hosts.communicator import Communicator
from railweave.hosts.errors import InvalidOption, PeerLost, RailweaveError

import railweave

TICK_S = 0.1  # between two words about progress
SLOW_S = 0.1  # calls that take longer are told one by one
AGAIN_S = 0.1  # between two attempts to join


@dataclass
class Stop:
    """Whether the word to stop has come."""

    asked: bool = False

    def ask(self, *_: object) -> None:
        """Take the signal."""
        self.asked = True


def work() -> None:
    """Join and sum, again after every error, until told to stop."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--bytes", type=int, required=True)
    count = parser.parse_args().bytes // 4
    stop = Stop()
    signal.signal(signal.SIGUSR1, stop.ask)
    while True:
        begin = time.monotonic()
        try:
            with railweave.init() as comm:
                emit("joined", rank=comm.rank, at=time.monotonic(), took=time.monotonic() - begin)
                _series(comm, count, stop)
                emit("done", rank=comm.rank)
                return
        except InvalidOption:
            raise
        except RailweaveError as error:
            _tell_error(error)
            time.sleep(AGAIN_S)


def _series(comm: Communicator, count: int, stop: Stop) -> None:
    inputs = [_input(rank, count) for rank in range(comm.world_size)]
    base = inputs[comm.rank]
    total: NDArray[np.int32] = np.sum(np.stack(inputs), axis=0, dtype=np.int32)
    mine, result = np.empty_like(base), np.empty_like(base)
    calls = wrong = 0
    told = 0.0
    while True:
        np.add(base, np.int32(calls), out=mine)
        mine[0] = comm.rank == 0 and stop.asked
        begin = time.monotonic()
        comm.all_reduce(mine, out=result)
        end = time.monotonic()
        wrong += int(np.count_nonzero(result[1:] != total[1:] + np.int32(comm.world_size * calls)))
        calls += 1
        if end - begin > SLOW_S:
            emit("slow", rank=comm.rank, begin=begin, end=end)
        if end - told > TICK_S or wrong or result[0]:
            emit("tick", rank=comm.rank, at=end, calls=calls, wrong=wrong)
            wrong, told = 0, end
        if result[0]:
            return


def _input(rank: int, count: int) -> NDArray[np.int32]:
    return np.random.default_rng(rank).integers(-(1 << 30), 1 << 30, count, np.int32)


def _tell_error(error: RailweaveError) -> None:
    emit(
        "error",
        rank=int(os.environ["RANK"]),
        at=time.monotonic(),
        kind=type(error).__name__,
        lost=error.rank if isinstance(error, PeerLost) else None,
        text=str(error),
    )


if __name__ == "__main__":
    sys.exit(run_worker(work))
