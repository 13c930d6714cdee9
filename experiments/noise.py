# SPDX-License-Identifier: Apache-2.0
"""Keep one core busy for a share of its time: `python -m railweave.experiments.noise CORE SHARE`.

The program runs until it is killed."""

from __future__ import annotations

import os
import sys
import time

PERIOD_S = 0.01


def main() -> None:
    """Compute for a share of every period, and sleep for the rest."""
    os.sched_setaffinity(0, {int(sys.argv[1])})
    busy_s = PERIOD_S * float(sys.argv[2])
    while True:
        until = time.thread_time() + busy_s
        begin = time.monotonic()
        while time.thread_time() < until:
            pass
        time.sleep(max(0.0, begin + PERIOD_S - time.monotonic()))


if __name__ == "__main__":
    main()
