# SPDX-License-Identifier: Apache-2.0
"""Run the parameter server of a job.

    python -m railweave.sdk.serve ALGORITHM TOPOLOGY PLANE NUMBER OPTIONS

The server prints `ready` when it listens, and serves until it is killed. NUMBER counts the jobs on the same
switches. OPTIONS are the job's options as JSON.
"""

from __future__ import annotations

import contextlib
import json
import signal
import sys
from collections.abc import Sequence

from railweave.sdk import library
from railweave.sdk.sockets import serve
from railweave.topologies.serialize import load


def main(words: Sequence[str]) -> None:
    """Serve the job that the command line names."""
    name, topology, plane_name, number, options = words
    algorithm, plane = library.find(name), load(topology).plane(plane_name)
    job = algorithm.job(int(number), len(plane.nics), json.loads(options))
    ports = algorithm.manifest
    receivers = [(address, ports.rank_port(job.number)) for address in algorithm.receivers(plane)]
    if algorithm.server is not None:
        at = plane.nics[0].address, ports.server_port(job.number)
        serve(algorithm.server(job), at, receivers)


if __name__ == "__main__":
    signal.signal(signal.SIGUSR1, signal.SIG_IGN)  # stops the ranks of an endless job, in the same group
    with contextlib.suppress(KeyboardInterrupt):
        main(sys.argv[1:])
