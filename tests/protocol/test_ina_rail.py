# SPDX-License-Identifier: Apache-2.0
"""In-network rails on real UDP sockets over loopback. The switch is the model, on another socket."""

from __future__ import annotations

import time
from collections.abc import Iterator

import numpy as np
import pytest
from protocol.loopback_switch import GROUP, LANES, SLOTS, LoopbackSwitch, own_address
from protocol.oracle import Array, expected
from protocol.rail_world import DEADLINE_S, SECRET, World
from protocol.switch_model import CONTRIBUTE

from railweave._rigs.rails import Rails

ADDRESS = own_address()
LOOPBACK = "127.0.0.1"


@pytest.fixture
def switch(request: pytest.FixtureRequest) -> Iterator[LoopbackSwitch]:
    hosts, refuse_every = request.param
    served = LoopbackSwitch(ADDRESS, hosts, refuse_every)
    yield served
    served.close()


BEST_EFFORT, LOWER_EFFORT = 0, 0x20  # CS0, CS1


def attached_rails(hosts: int, rate_bps: int = 0, *, yields: bool = False, address: str = ADDRESS) -> Rails:
    rails = Rails(hosts)
    members = [
        (LOOPBACK, rails.open_ina(host, LOOPBACK, rate_bps=rate_bps, yields=yields)) for host in range(hosts)
    ]
    for host in range(hosts):
        rails.attach(host, [(GROUP, address)], slots=SLOTS, lanes=LANES)
        rails.connect_tcp(host, SECRET, members)
    return rails


def start(rails: Rails, op_index: int, op: str, inputs: list[Array]) -> list[Array]:
    outputs = [np.zeros_like(values) for values in inputs]
    for host, (values, output) in enumerate(zip(inputs, outputs, strict=True)):
        rails.start(host, op_index, op_index, values, output, op)
    return outputs


@pytest.mark.parametrize(("switch", "rate_bps"), [((3, 0), 0), ((3, 50), 10_000_000)], indirect=["switch"])
def test_slices_over_real_sockets(switch: LoopbackSwitch, rate_bps: int) -> None:
    """The second switch loses 2 % of the packets."""
    rails = attached_rails(3, rate_bps)
    generator = np.random.default_rng(1)
    floats = [generator.standard_normal(5000).astype(np.float32) for _ in range(3)]
    integers = [generator.integers(-(2**31), 2**31, 3000, np.int32) for _ in range(3)]
    sums, extremes = start(rails, 0, "sum", floats), start(rails, 1, "max", integers)
    World(3, rails).run(lambda: all(sorted(rails.done(host)) == [0, 1] for host in range(3)))
    for output in sums:
        np.testing.assert_array_equal(output, expected(floats, "sum", LANES, sealed=False))
    for output in extremes:
        np.testing.assert_array_equal(output, expected(integers, "max", LANES, sealed=False))
    stats = rails.stats(0)
    assert (stats.slices, stats.payload_bytes, stats.malformed) == (2, 4 * (5000 + 3000), 0)
    assert (stats.retransmissions > 0) or not switch.refuse_every


@pytest.mark.parametrize("switch", [(2, 0)], indirect=True)
def test_what_lets_others_pass_gets_its_part_yet(switch: LoopbackSwitch) -> None:
    """Other traffic may starve lower-effort packets (RFC 8622). The rail then sends best-effort packets.

    It yields again later, without a pause.
    """
    rails = attached_rails(2, yields=True)
    world = World(2, rails)
    inputs = [np.full(5000, host + 1, np.int32) for host in range(2)]

    def call(op_index: int) -> None:
        outputs = start(rails, op_index, "sum", inputs)
        world.run(lambda: all(op_index in rails.done(host) for host in range(2)))
        assert all((output == 3).all() for output in outputs)

    call(0)
    assert switch.services[CONTRIBUTE] == {LOWER_EFFORT}
    switch.starved.add(LOWER_EFFORT)
    call(1)
    assert switch.services[CONTRIBUTE] == {LOWER_EFFORT, BEST_EFFORT}
    switch.starved.clear()
    switch.services.clear()
    latest, number = time.monotonic() + DEADLINE_S, 2
    while LOWER_EFFORT not in switch.services[CONTRIBUTE] and time.monotonic() < latest:
        call(number)
        number += 1
    assert LOWER_EFFORT in switch.services[CONTRIBUTE]


def test_what_the_kernel_refuses_to_send_is_not_counted_as_sent() -> None:
    rails = attached_rails(2, address="240.0.0.1")  # a reserved address without a route from loopback
    start(rails, 0, "sum", [np.ones(5000, np.int32)] * 2)
    World(2, rails).run(lambda: rails.stats(0).send_drops > 0)
    stats = rails.stats(0)
    counted = {name: getattr(stats.sent, name) for name in ("payload", "resends")}
    assert counted == {"payload": 0, "resends": 0}


def test_errors_say_what_is_wrong() -> None:
    rails = Rails(2)
    with pytest.raises(RuntimeError, match=r"no interface of this machine has the address 192\.0\.2\.1"):
        rails.open_ina(0, "192.0.2.1")
    with pytest.raises(RuntimeError, match="'rail' is not an IPv4 address"):
        rails.open_ina(0, "rail")
    with pytest.raises(RuntimeError, match="interface nowhere0"):
        rails.open_ina(0, LOOPBACK, "nowhere0")
    rails.open_ina(0, LOOPBACK)
    with pytest.raises(ValueError, match="power of two"):
        rails.attach(0, [(GROUP, ADDRESS)], slots=100, lanes=LANES)
