# SPDX-License-Identifier: Apache-2.0
"""Give a plane's switches an algorithm's program and entries, and print their counts.

This is a separate program, because the switches can be reached only from inside their network.

    python -m railweave.sdk.fill ALGORITHM TOPOLOGY PLANE JOBS OPTIONS LOSS

OPTIONS are the jobs' options as JSON. LOSS is the probability with which each port drops a frame, each way.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import sys
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from railweave.controller import desired
from railweave.controller.routes import trunk_ends
from railweave.controller.southbound import SwitchLink
from railweave.controller.state import SwitchState, difference
from railweave.errors import UserError
from railweave.sdk import library
from railweave.sdk.errors import AlgorithmError
from railweave.sdk.library import Algorithm
from railweave.sdk.states import require_fit, union
from railweave.topologies.model import Plane, Switch
from railweave.topologies.serialize import load

DEADLINE_S = 20.0


async def fill_all(
    algorithm: Algorithm, plane: Plane, jobs: int, options: Mapping[str, Any], loss: float
) -> Counter[str]:
    """Fill all P4 switches of a plane. Return the packets by action of the manifest's counters."""
    ranks = len(plane.nics)
    made = [algorithm.job(number, ranks, options) for number in range(jobs)]
    states = {
        name: union(state, _losses(plane, name, loss))
        for name, state in algorithm.wanted(plane, made).items()
    }
    require_fit(states, algorithm.artifact(), algorithm.manifest.counters)
    switches = [switch for switch in plane.switches if switch.p4runtime]
    counted = await asyncio.gather(*(_fill(algorithm, switch, states[switch.name]) for switch in switches))
    return sum(counted, Counter())


def _losses(plane: Plane, switch: str, probability: float) -> SwitchState:
    """Return the entries of the injector, for programs that include `stages/injector.p4`."""
    ports = {nic.port for nic in plane.nics if nic.switch == switch}
    ports |= {port for name, port in trunk_ends(plane) if name == switch}
    return desired.losses(
        desired.Loss(port, way, probability) for port in ports for way in ("ingress", "egress")
    )


async def _fill(algorithm: Algorithm, switch: Switch, state: SwitchState) -> Counter[str]:
    """Give a switch the program and the entries that it lacks."""
    counts: asyncio.Future[Counter[str]] = asyncio.get_running_loop().create_future()

    async def connected() -> None:
        await link.write(difference(await link.read(), state))
        found: Counter[str] = Counter()
        for table in algorithm.manifest.counters:
            for entry, packets in await link.packets(table):
                found[entry.action.name] += packets  # type: ignore[union-attr]
        counts.set_result(found)

    link = SwitchLink(switch, algorithm.artifact(), connected)
    session = asyncio.create_task(link.run())
    try:
        return await asyncio.wait_for(counts, DEADLINE_S)
    except TimeoutError:
        given = link.problem or f"switch {switch.name}: no answer within {DEADLINE_S:g} s"
        raise AlgorithmError(given, "a switch that runs the program", "read the switch's log") from None
    finally:
        session.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await session


def main(words: Sequence[str]) -> None:
    """Fill the switches that the command line names."""
    name, topology, plane, jobs, options, loss = words
    algorithm = library.find(name)
    asked = int(jobs), json.loads(options), float(loss)
    filled = fill_all(algorithm, load(topology).plane(plane), *asked)
    try:
        json.dump(asyncio.run(filled), sys.stdout)
    except UserError as error:
        sys.exit(str(error))


if __name__ == "__main__":
    main(sys.argv[1:])
