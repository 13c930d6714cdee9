# SPDX-License-Identifier: Apache-2.0
"""The event loop that threads share: its leading thread, and the end of a wait."""

from __future__ import annotations

import os
import queue
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor

import pytest

from railweave._rigs.loop import Counter, Outcome

DEADLINE_S = 30.0
SLICE_S = 0.1  # a waiting thread checks for signals after this time
SHORTEST_TIMEOUT_S = 0.004  # shortest timeout of a RoCE requester; responders hold acknowledgements for 1 ms


@pytest.fixture
def pool() -> Iterator[ThreadPoolExecutor]:
    with ThreadPoolExecutor(4) as pool:
        yield pool


Make = Callable[[Callable[[], object]], Counter]


@pytest.fixture(params=[False, True], ids=["shared", "own CPUs"])
def make(request: pytest.FixtureRequest) -> Make:
    """Return a function that makes loops. Waiting threads lead them, or the loops have their own CPUs."""

    def made(on_failure: Callable[[], object]) -> Counter:
        counter = Counter(on_failure)
        if request.param:
            counter.lead_on(list(os.sched_getaffinity(0)))
        return counter

    return made


def patiently(wait: Callable[[int, float], Outcome], until: int) -> Outcome:
    """Repeat an interrupted wait, as callers do after they have checked for signals."""
    while (outcome := wait(until, DEADLINE_S)) is Outcome.INTERRUPTED:
        pass
    return outcome


def nothing() -> None:
    """Do nothing."""


hows = pytest.mark.parametrize("how", ["wait", "wait_leading"])


@hows
def test_a_wait_ends_with_what_it_waits_for_however_often_others_lead(
    make: Make, pool: ThreadPoolExecutor, how: str
) -> None:
    counter = make(nothing)
    assert getattr(counter, how)(1, 0.0) is Outcome.TIMEOUT
    waits = [pool.submit(patiently, getattr(counter, how), 1) for _ in range(2)]
    for _ in range(200):
        counter.run(nothing)
        assert not any(wait.done() for wait in waits)
    counter.set(1)
    assert [wait.result(DEADLINE_S) for wait in waits] == [Outcome.DONE] * 2


@hows
def test_what_ends_before_the_loop_sleeps_is_not_slept_over(make: Make, how: str) -> None:
    counter = make(nothing)
    took_s = []
    for value in range(1, 11):
        counter.set_next(value)
        begin = time.monotonic()
        assert patiently(getattr(counter, how), value) is Outcome.DONE
        took_s.append(time.monotonic() - begin)
    assert min(took_s) < SLICE_S, "each wait has slept to the end of its slice"


def test_a_task_has_what_it_throws(make: Make) -> None:
    counter = make(nothing)

    def fail() -> None:
        raise KeyError("mine")

    with pytest.raises(KeyError, match="mine"):
        counter.run(fail)
    counter.run(nothing)


@hows
def test_what_a_turn_throws_is_the_clients_and_the_loop_is_free_again(make: Make, how: str) -> None:
    failed = threading.Event()
    counter = make(failed.set)
    counter.fail_next("a rail has thrown")
    latest = time.monotonic() + DEADLINE_S
    while not failed.is_set() and time.monotonic() < latest:
        assert getattr(counter, how)(1, 0.05) is not Outcome.DONE
    assert counter.failures() == ["a rail has thrown"]
    counter.run(nothing)


def test_what_a_prompt_throws_is_the_clients_whichever_thread_leads(make: Make) -> None:
    failed = queue.SimpleQueue[None]()
    counter = make(lambda: failed.put(None))
    for _ in range(2):  # in the caller, or in the thread that leads without a waiting thread
        counter.fail_next("a rail has thrown")
        counter.prompt()
        failed.get(timeout=DEADLINE_S)
    assert counter.failures() == ["a rail has thrown"] * 2


def test_what_has_thrown_is_not_called_again(make: Make) -> None:
    thrown: list[None] = []
    counter = make(lambda: thrown.append(None))
    reading, writing = os.pipe()
    os.write(writing, b"nobody reads this")
    counter.watch_broken(reading)
    counter.add_broken_timer()

    def turn() -> None:
        while len(thrown) < 2:
            counter.turn_until(1, 0.01)

    counter.close(turn)
    assert sorted(counter.failures()) == ["a handler has thrown", "a timer has thrown"]
    os.close(reading)
    os.close(writing)


def test_nobody_leads_between_the_steps_of_closing(make: Make, pool: ThreadPoolExecutor) -> None:
    counter = make(nothing)
    order: list[str] = []
    others: list[Future[None]] = []

    def lead(reached: threading.Event) -> None:
        reached.set()
        counter.run(lambda: order.append("other"))

    def close() -> None:
        for _ in range(3):
            reached = threading.Event()
            others.append(pool.submit(lead, reached))
            assert reached.wait(DEADLINE_S)
            counter.turn_until(1, 0.01)
        order.append("closed")

    counter.close(close)
    for other in others:
        other.result(DEADLINE_S)
    assert order == ["closed", "other", "other", "other"]


def test_who_closes_second_waits_for_the_first(make: Make, pool: ThreadPoolExecutor) -> None:
    counter, begun = make(nothing), threading.Event()
    first = pool.submit(counter.close, lambda: (begun.set(), counter.turn_until(1, DEADLINE_S)))
    assert begun.wait(DEADLINE_S)
    second = pool.submit(counter.close, lambda: pytest.fail("it is closed once"))
    counter.set(1)
    second.result(DEADLINE_S)
    assert first.done() or first.result(DEADLINE_S) is None


def test_who_waits_for_a_loop_with_cpus_of_its_own_lets_it_turn() -> None:
    """The loop sleeps until an event comes. The wait must wake it for the work of its next turn."""
    failed = queue.SimpleQueue[None]()
    counter = Counter(lambda: failed.put(None))
    counter.lead_on(list(os.sched_getaffinity(0)))
    for _ in range(20):
        counter.fail_next("what comes before a turn")
        assert counter.wait(1, 0.0) is Outcome.TIMEOUT
        failed.get(timeout=DEADLINE_S)


@pytest.mark.parametrize(
    "delays_s", [(60.0, 0.02), (0.02, 0.05, 60.0, 0.05), (60.0, 0.0005), (0.02, 0.0)], ids=str
)
def test_a_deadline_is_met_wherever_it_has_been_before(make: Make, delays_s: tuple[float, ...]) -> None:
    """The deadline moves nearer or farther. The last deadline is met once, and no deadline is met too early.

    If this thread has to wait for a CPU, an earlier deadline may be met before it is moved.
    """
    counter = make(nothing)
    met: queue.SimpleQueue[tuple[float, float]] = queue.SimpleQueue()
    for _ in range(3):
        for delay_s in delays_s:
            turns, due = counter.turns(), time.monotonic() + delay_s
            counter.set_alarm(delay_s, lambda due=due: met.put((due, time.monotonic())))
            while counter.turns() == turns:  # in the next turn the loop sleeps until the deadline
                assert time.monotonic() < due + DEADLINE_S
        last = None
        while last != due:
            last, at = met.get(timeout=DEADLINE_S)
            assert at >= last
        assert met.empty()


def test_cpus_that_there_are_not_are_refused() -> None:
    counter = Counter(nothing)
    for cpu in (-1, 1023, 1024):
        with pytest.raises(ValueError, match=f"CPU {cpu} is not one of those that this process may use, 0"):
            counter.lead_on([0, cpu])
    assert counter.wait(1, 0.0) is Outcome.TIMEOUT


def test_what_is_due_soon_after_a_wait_is_done_before_a_peer_asks_again(make: Make) -> None:
    """A busy machine may be late, so the shortest of many delays counts."""
    counter = make(nothing)
    done: queue.Queue[float] = queue.Queue()
    delays_s: list[float] = []
    while len(delays_s) < 200 and min(delays_s, default=1.0) >= SHORTEST_TIMEOUT_S:
        begin = time.monotonic()
        counter.set_alarm(0.001, lambda: done.put(time.monotonic()))
        delays_s.append(done.get(timeout=DEADLINE_S) - begin)
    assert min(delays_s) < SHORTEST_TIMEOUT_S
