# SPDX-License-Identifier: Apache-2.0
"""Measure the benefit of a second rail by its rate.

Run as root: `python examples/second_rail.py second_rail.png`. Four hosts have an in-network rail of
100 Mbit/s and a tcp rail of 10 to 100 Mbit/s. The figure shows the time of an allreduce on both rails, after
the ranks have learned the split.
"""

from __future__ import annotations

import sys
import time
from statistics import median

import matplotlib.pyplot as plt
import numpy as np

import railweave

RATES = (10, 20, 50, 100)  # Mbit/s
SIZE = 1 << 20  # bytes


def worker(comm: railweave.Communicator, calls: int) -> float:
    """Return the median time of `calls` allreduces in seconds, after the same number of warm-up calls."""
    x, times = np.ones(SIZE // 4, np.float32), []
    for _ in range(2 * calls):
        start = time.monotonic()
        comm.all_reduce(x)
        times.append(time.monotonic() - start)
    return median(times[calls:])


def measure(rate: int, calls: int) -> float:
    """Return the longest median of all ranks, in a new lab."""
    with railweave.lab(hosts=4, rails="ina,tcp", rate=f"100M,{rate}M") as lab:
        return max(lab.run(worker, calls).wait().values)


def main(file: str, calls: int = 40) -> None:
    """Measure all rates, and draw the figure to a file."""
    times = [1e3 * measure(rate, calls) for rate in RATES]
    plt.plot(RATES, times, marker="o")
    plt.xlabel("rate of the tcp rail, Mbit/s")
    plt.ylabel(f"allreduce of {SIZE >> 20} MiB, ms")
    plt.ylim(bottom=0)
    plt.savefig(file)


if __name__ == "__main__":
    main(sys.argv[1])
