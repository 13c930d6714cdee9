# SPDX-License-Identifier: Apache-2.0
"""`python -m railweave.experiments.switch_speed.echo INTERFACE …`: a switch's ports without an engine.

UDP packets return to their senders, in the same number and of the same sizes: what the packet I/O and the
kernel can do, beside which a switch is measured.
"""

from __future__ import annotations

import signal
import sys

from railweave._native.ports import SwitchPorts


def main(interfaces: list[str]) -> None:
    """Serve until SIGINT or SIGTERM; prints one line when it is ready."""
    ends = {signal.SIGINT, signal.SIGTERM}
    signal.pthread_sigmask(signal.SIG_BLOCK, ends)
    ports = SwitchPorts(list(enumerate(interfaces, 1)))
    ports.reflect()
    ports.start()
    print("ready", flush=True)
    signal.sigwait(ends)
    ports.stop()


if __name__ == "__main__":
    main(sys.argv[1:])
