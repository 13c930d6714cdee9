# SPDX-License-Identifier: Apache-2.0
"""Rails whose slices an endpoint of an in-network algorithm carries, over loopback."""

from __future__ import annotations

import contextlib
import gc
import os
import resource
import socket
import sys
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from protocol import exchange
from protocol.exchange import Fault
from protocol.jobs import DEADLINE_S, StaticJob

from railweave import sdk
from railweave.hosts import interfaces, rails
from railweave.hosts.communicator import LINGER_S, Communicator
from railweave.hosts.decisions import Reason
from railweave.hosts.endpoints import END_S
from railweave.hosts.errors import InvalidOption, PeerLost, RailDown, RailweaveError, UnsupportedDType
from railweave.hosts.events import AlgorithmJob
from railweave.hosts.reports import RailReport

NETWORK = f"127.{1 + os.getpid() // 250 % 250}.{1 + os.getpid() % 250}"  # of this process: ports are fixed
COUNT = 20 * 1024  # rails carry equal parts of multiples of 1024


@pytest.fixture(autouse=True)
def _addresses(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let a rail name a loopback address in place of its interface, because the ranks use one UDP port."""

    def found(name: str) -> interfaces.Interface:
        if name.startswith(NETWORK):
            return replace(interfaces.interface("lo"), address=name)
        return interfaces.interface(name)

    monkeypatch.setattr(rails, "interface", found)


class Job(StaticJob):
    """A job of two ranks. The rail `alg` is `alone`, or `alg` and `tcp` carry equal parts of each call."""

    def __init__(self, folder: Path, *, alone: bool = False) -> None:
        super().__init__(2, algorithms=[AlgorithmJob("alg", str(folder), 0, exchange.LANES)])
        self.alone = alone
        self.folder = folder

    @property
    def hooks(self) -> dict[str, exchange.Hook]:
        """The hooks of the endpoint's class."""
        return sdk.find(str(self.folder)).endpoint.hooks  # type: ignore[attr-defined,no-any-return]

    def communicator(self, rank: int, rails: str = "", **options: object) -> Communicator:
        both = "" if self.alone else ",tcp=tcp@lo"
        shares = {} if self.alone else {"alg": 1, "tcp": 1}
        return super().communicator(
            rank, f"alg=algorithm@{NETWORK}.{rank + 1}{both}", **{"shares": shares, **options}
        )


@pytest.fixture
def job(tmp_path: Path) -> Job:
    code = "from protocol import exchange\n\nclass Endpoint(exchange.Exchange):\n    hooks = {}\n"
    return Job(exchange.write(tmp_path / "algorithm", code))


def report(comm: Communicator) -> RailReport:
    return next(rail for rail in comm.stats().rails if rail.name == "alg")


def add(comm: Communicator, number: int, dtype: str = "int32", count: int = COUNT, op: str = "sum") -> None:
    """Reduce numbers that differ by rank, call and place, and check the result."""
    first, second = (np.arange(count).astype(dtype) * (rank + 1) + number for rank in range(2))
    wanted = {"sum": first + second, "max": second, "min": first, "avg": ((first + second) / 2).astype(dtype)}
    np.testing.assert_array_equal(
        comm.all_reduce(second if comm.rank else first, op), wanted[op], strict=True
    )


def until(comm: Communicator, reached: Callable[[RailReport], object]) -> RailReport:
    """Make calls on all ranks until the rail's state is as wanted on each. Return the state."""
    latest, number = time.monotonic() + DEADLINE_S, 0
    while True:
        add(comm, number)
        alg, number = report(comm), number + 1
        if comm.all_reduce(np.array([bool(reached(alg))], np.int32), "min")[0]:
            return alg
        assert time.monotonic() < latest, alg


def is_used(comm: Communicator) -> None:
    """Check that the rail carries its part of calls."""
    before = report(comm).slices
    for number in range(4):
        add(comm, number)
    assert report(comm).slices == before + 4


def until_used_again(comm: Communicator) -> None:
    until(comm, lambda alg: alg.state == "up" and alg.incarnation)
    is_used(comm)


def threads() -> list[threading.Thread]:
    """Return the threads of endpoints."""
    return [each for each in threading.enumerate() if each.name == "railweave alg"]


# ---------------------------------------------------------------- an endpoint that works


def test_it_carries_its_part(job: Job) -> None:
    def work(comm: Communicator) -> None:
        for number in range(60):
            add(comm, number, ("int32", "float32")[number % 2], COUNT // 20 * (number % 20 + 1))
        alg = report(comm)
        carried = 3 * 2 * sum(COUNT // 20 * (number + 1) for number in range(20))
        assert (alg.state, alg.failures, alg.slices, alg.payload_bytes) == ("up", 0, 60, carried)
        datagrams = carried * (256 + 8) / 256  # of 256 bytes, with the algorithm's header
        on_wire = datagrams + carried / 256 * 42
        assert datagrams < alg.sent.payload < 1.05 * datagrams
        assert on_wire < alg.bytes_sent < 1.05 * (on_wire + alg.sent.resends)
        assert on_wire < alg.bytes_received
        assert carried / 256 < alg.packets_sent < alg.bytes_sent / 42
        assert 0 < alg.busy_s < DEADLINE_S
        assert exchange.PORT in comm._parts.reporter.ports()["alg"]
        used = [each for each in comm.why() if each.rail == "alg"]
        assert sum(each.calls for each in used) == 60
        assert {(each.used, each.reason, each.detail) for each in used} == {(True, "", "algorithm")}

    job.run(work)
    assert not threads()


@pytest.mark.parametrize("alone", [False, True])
def test_means_and_other_operations_of_the_algorithm(job: Job, alone: bool) -> None:
    job.alone = alone

    def work(comm: Communicator) -> None:
        for number in range(8):
            for op, dtype in (("avg", "float32"), ("max", "float32"), ("max", "int32"), ("sum", "int32")):
                add(comm, number, dtype, COUNT + number, op)
        assert report(comm).slices == 32

    job.run(work)


def test_the_other_rail_carries_all_other_calls(job: Job) -> None:
    def work(comm: Communicator) -> None:
        add(comm, 1, "float64")
        add(comm, 2, "int32", op="min")
        add(comm, 3, "int32", op="avg")
        assert (comm.broadcast(np.full(COUNT, comm.rank, np.float32), root=1) == 1).all()
        assert comm.all_gather(np.full(COUNT, comm.rank, np.int32)).sum() == COUNT
        assert (comm.reduce_scatter(np.ones(COUNT, np.int32)) == 2).all()
        reasons = {
            (each.collective, each.dtype, each.op): each.reason for each in comm.why() if each.rail == "alg"
        }
        assert reasons == {
            ("all_reduce", "float64", "sum"): Reason.DTYPE,
            ("all_reduce", "int32", "min"): Reason.OP,
            ("all_reduce", "int32", "avg"): Reason.OP,
            ("broadcast", "float32", ""): Reason.COLLECTIVE,
            ("all_gather", "int32", ""): Reason.COLLECTIVE,
            ("reduce_scatter", "int32", "sum"): Reason.COLLECTIVE,
        }
        assert report(comm).slices == 0

    job.run(work)


# ---------------------------------------------------------------- endpoints that fail


def fails(text: str) -> Callable[[object], None]:
    """Return a function that raises an exception with this text."""

    def fail(_: object) -> None:
        raise RuntimeError(text)

    return fail


fail = fails("it is tested")


def changed(place: int, bit: int) -> Callable[[Any], Any]:
    """Return a function that changes one bit of a number of a result."""

    def change(result: Any) -> Any:
        result[place] ^= np.int32(1) << bit
        return result

    return change


RAISED = "rank 1: its endpoint failed: RuntimeError: it is tested"
FAULTS: dict[str, tuple[str, Callable[[Any], Any], str]] = {
    "begin": ("begin", fail, RAISED),
    "transmit": ("transmit", fail, RAISED),
    "receive": ("receive", fail, RAISED),
    "result": ("result", fail, RAISED),
    "long": ("begin", fails("x" * 100_000), "rank 1: its endpoint failed: RuntimeError: xxx"),
    "binary": ("begin", fails("\udcff"), "rank 1: its endpoint failed: RuntimeError: ?"),
    "exit": (
        "begin",
        lambda _: sys.exit("it is tested"),
        "rank 1: its endpoint failed: SystemExit: it is tested",
    ),
    "size": ("result", lambda result: result[1:], "a result of (10241,) int32: expected (10242,) int32"),
    "shape": ("result", lambda result: result[np.newaxis], "a result of (1, 10242) int32: expected (10242,)"),
    "type": ("result", lambda result: result.astype(np.int64), "a result of (10242,) int64: expected"),
    "none": ("result", lambda _: None, "rank 1: its endpoint failed: AttributeError"),
    "low bit": ("result", changed(1234, 0), "a wrong sum: its checksum"),
    "high bit": ("result", changed(1235, 31), "a wrong sum: its checksum"),
    "checksum": ("result", changed(-1, 5), "a wrong sum: its checksum"),
    "datagram": ("transmit", lambda _: [bytes(70_000)], "rank 1: its endpoint failed: OSError"),
    "position": ("position", lambda _: -1, "rank 1: its endpoint failed: TypeError"),
}


@pytest.mark.parametrize("name", FAULTS)
def test_an_endpoint_that_fails_is_excluded_and_used_again(job: Job, name: str) -> None:
    where, does, reason = FAULTS[name]
    fault = Fault(1, does)

    def work(comm: Communicator) -> None:
        is_used(comm)
        job.meet()
        job.hooks[where] = fault
        alg = until(comm, lambda alg: alg.failures)
        assert reason in alg.last_failure
        fault.repaired.set()
        until_used_again(comm)

    job.run(work)
    assert not threads()


def test_calls_in_flight_are_right_if_an_endpoint_fails(job: Job) -> None:
    left = iter(range(4))  # calls that begin before the failure
    job.hooks["begin"] = fault = Fault(
        1, lambda given: given if next(left, None) is not None else fail(given)
    )

    def work(comm: Communicator) -> None:
        for first in range(0, 40, 10):
            given = [np.arange(COUNT, dtype=np.int32) * (comm.rank + 1) + n for n in range(first, first + 10)]
            for number, pending in enumerate([comm.all_reduce(each, async_op=True) for each in given]):
                wanted = np.arange(COUNT, dtype=np.int32) * 3 + 2 * (first + number)
                np.testing.assert_array_equal(pending.wait(), wanted)
        alg = report(comm)
        assert RAISED in alg.last_failure
        assert alg.slices >= 3  # the failure may overtake the last answer to the other rank
        fault.repaired.set()
        until_used_again(comm)

    job.run(work)


def test_a_failed_rail_says_why(job: Job) -> None:
    job.hooks["begin"] = Fault(1, fail)

    def work(comm: Communicator) -> None:
        until(comm, lambda alg: alg.failures)
        (now,) = (each for each in comm.why() if each.rail == "alg" and not each.collective)
        assert (now.used, now.reason, now.detail) == (False, Reason.RAIL_DOWN, f"it is down: {RAISED}")
        before = report(comm).slices
        until(comm, lambda alg: alg.incarnation >= 2)  # a trial has failed
        assert report(comm).slices == before

    job.run(work)


@pytest.mark.parametrize("where", ["init", "receive"])
def test_an_endpoint_that_hangs_holds_nobody_up(job: Job, where: str) -> None:
    job.hooks[where] = fault = Fault(1)

    def work(comm: Communicator) -> float:
        alg = until(comm, lambda alg: alg.failures)
        assert " for it alone" in alg.last_failure
        begun = time.monotonic()
        comm.close()
        return time.monotonic() - begun

    assert max(job.run(work)) < 2 * END_S + LINGER_S
    (thread,) = threads()
    fault.repaired.set()
    thread.join(DEADLINE_S)
    assert not thread.is_alive()


def test_an_endpoint_that_no_longer_hangs_is_used_again(job: Job) -> None:
    fault = Fault(1)

    def work(comm: Communicator) -> None:
        job.hooks["receive"] = fault
        until(comm, lambda alg: alg.incarnation >= 2)
        fault.repaired.set()
        until_used_again(comm)

    job.run(work)
    assert not threads()


def test_an_endpoint_that_cannot_start_behind_others_stays_excluded(tmp_path: Path) -> None:
    code = """
from railweave import sdk
from protocol import exchange

class Endpoint(exchange.Exchange):
    hooks = {}
    position = sdk.Endpoint.position
    start_at = sdk.Endpoint.start_at
"""
    job = Job(exchange.write(tmp_path / "algorithm", code))
    fault = Fault(1, fail)

    def work(comm: Communicator) -> None:
        is_used(comm)
        job.hooks["begin"] = fault
        until(comm, lambda alg: alg.failures)
        fault.repaired.set()
        alg = until(comm, lambda alg: alg.incarnation >= 3)
        assert (alg.state in ("down", "recovering"), alg.failures) == (True, 1)

    job.run(work)


def test_a_rail_whose_endpoint_cannot_be_made_is_used_later(job: Job) -> None:
    job.hooks["init"] = fault = Fault(1, fail)

    def work(comm: Communicator) -> None:
        alg = until(comm, lambda alg: alg.failures)
        assert RAISED in alg.last_failure
        assert alg.slices == 0
        fault.repaired.set()
        until_used_again(comm)

    job.run(work)


def test_a_rail_whose_port_is_taken_is_used_later(job: Job) -> None:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as other:
        other.bind((f"{NETWORK}.2", exchange.PORT))

        def work(comm: Communicator) -> None:
            alg = until(comm, lambda alg: alg.failures)
            assert "rank 1: its endpoint failed: OSError" in alg.last_failure
            assert "Address already in use" in alg.last_failure
            other.close()
            until_used_again(comm)

        job.run(work)


@pytest.mark.parametrize(
    ("code", "text"),
    [
        (None, r"rail 'alg': .*algorithm.toml"),
        ("import missing_module", r"rail 'alg': .*endpoint.py: ModuleNotFoundError"),
        ("", r"rail 'alg': .*endpoint.py has no class Endpoint"),
    ],
)
def test_an_algorithm_that_this_host_lacks_is_an_error(tmp_path: Path, code: str | None, text: str) -> None:
    folder = tmp_path / "algorithm"
    if code is not None:
        exchange.write(folder, code)
    job = Job(folder)

    def body(rank: int) -> None:
        with pytest.raises(InvalidOption, match=text):
            job.communicator(rank)

    with ThreadPoolExecutor(2) as pool:
        list(pool.map(body, range(2)))
    assert not threads()


def test_a_controller_that_names_no_algorithm_is_an_error(job: Job) -> None:
    job.algorithms = {}

    def body(rank: int) -> None:
        with pytest.raises(InvalidOption, match="rail 'alg': the controller names no algorithm"):
            job.communicator(rank)

    with ThreadPoolExecutor(2) as pool:
        list(pool.map(body, range(2)))


@pytest.mark.parametrize("alone", [False, True])
def test_close_during_a_call(job: Job, alone: bool) -> None:
    job.alone = alone

    def work(comm: Communicator) -> None:
        add(comm, 0)
        job.meet()
        if comm.rank == 0:
            pending = comm.all_reduce(np.ones(COUNT, np.int32), async_op=True)
            begun = time.monotonic()
            comm.close()
            assert time.monotonic() - begun < END_S
            with pytest.raises(PeerLost, match="rank 0 has closed its communicator with 1 calls unfinished"):
                pending.wait()
        job.meet()

    job.run(work)
    assert not threads()


# ---------------------------------------------------------------- the only rail


def test_the_only_rail(job: Job) -> None:
    job.alone = True

    def work(comm: Communicator) -> None:
        for number in range(20):
            add(comm, number, ("int32", "float32")[number % 2])
            comm.barrier()
        with pytest.raises(
            UnsupportedDType,
            match=r"broadcast of float32 \(alg: algorithm carries all_reduces: avg of float32",
        ):
            comm.broadcast(np.ones(3, np.float32), root=0)
        assert report(comm).slices == 40

    job.run(work)


def test_an_exception_of_the_only_rail_ends_the_job(job: Job) -> None:
    """The other rank learns of it from the controller, which a test does not have, or by its timeout."""
    job.alone = True

    def work(comm: Communicator) -> None:
        add(comm, 0)
        job.meet()
        job.hooks["begin"] = Fault(1, fail)
        job.meet()
        given = np.ones(COUNT, np.int32)
        if comm.rank == 1:
            with pytest.raises(RailDown, match="its endpoint failed: RuntimeError: it is tested") as raised:
                comm.all_reduce(given)
            assert raised.value.rail == "alg"
        else:
            with pytest.raises(
                RailweaveError, match="for call #1 on alg: a rank does not call it, or a rail"
            ):
                comm.all_reduce(given)

    job.run(work, timeout_s=1)
    assert not threads()


# ---------------------------------------------------------------- threads and descriptors


def descriptors() -> int:
    return sum(1 for _ in Path("/proc/self/fd").iterdir())


def test_nothing_stays_open(job: Job) -> None:
    found = []
    for _ in range(3):  # the first job imports modules
        job.run(lambda comm: add(comm, 0))
        gc.collect()
        found.append(descriptors())
    assert found == [found[0]] * 3


def test_descriptors_may_be_large(job: Job) -> None:
    """select(2) takes none above 1023."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, min(2048, hard)), hard))
    with contextlib.ExitStack() as taken, contextlib.suppress(OSError):
        for _ in range(1024):
            taken.callback(os.close, os.dup(0))
        job.run(is_used)
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def test_an_endpoint_may_collect_its_communicator_as_garbage(job: Job) -> None:
    with ThreadPoolExecutor(2) as pool:
        ranks = list(pool.map(job.communicator, range(2)))
    other = ranks.pop()

    def drop(_: object) -> None:
        ranks.clear()
        gc.collect()

    job.hooks["receive"] = Fault(0, drop)
    started = threads()
    ranks[0].all_reduce(np.ones(COUNT, np.int32), async_op=True)
    with other, pytest.raises(PeerLost, match="rank 0"):
        other.all_reduce(np.ones(COUNT, np.int32))
    for thread in started:
        thread.join(DEADLINE_S)
    assert job.memberships[0].left
