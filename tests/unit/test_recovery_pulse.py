# SPDX-License-Identifier: Apache-2.0
"""The cases in which a rail's silence means that it is dead, and those in which it means nothing."""

from __future__ import annotations

import random
import re
from pathlib import Path

import pytest

from railweave._rigs.recovery import Options, Pulse

MS = 1_000_000
BEAT = 10 * MS
RAILS = 3
LEAST, MOST = 40 * MS, 150 * MS
MEMORY = 80 * MS  # also the time in which little is known about a new rail


def options(memory: int, most_leeway: int = 0) -> Options:
    made = Options(rank=1, world_size=2, rails=RAILS)
    made.least_silence, made.most_silence, made.memory, made.most_leeway = LEAST, MOST, memory, most_leeway
    made.settling = MEMORY
    return made


@pytest.fixture
def pulse() -> Pulse:
    """Return a pulse that allows no time for late processes."""
    return Pulse(options(MEMORY), 0)


def beat(pulse: Pulse, ticks: range, rails: tuple[int, ...], delay: int = 0) -> int:
    """Hear each tick at its time, and return the time of the last tick."""
    for tick in ticks:
        now = tick * BEAT + delay
        for rail in rails:
            pulse.hear(rail, tick, now)
        pulse.judge(now)
    return now


def test_a_rail_that_is_silent_alone_is_dead(pulse: Pulse) -> None:
    beat(pulse, range(1, 20), (0, 1, 2))
    beat(pulse, range(20, 23), (0, 2))
    assert pulse.silent == 0
    now = beat(pulse, range(23, 24), (0, 2))
    assert now == 19 * BEAT + LEAST
    assert pulse.silent == 0b010


def test_silence_on_all_rails_means_nothing(pulse: Pulse) -> None:
    beat(pulse, range(1, 20), (0, 1, 2))
    late = 5_000 * MS
    pulse.judge(19 * BEAT + late)
    assert pulse.silent == 0
    for rail in range(RAILS):  # the order of the first ticks means nothing either
        pulse.hear(rail, 20, 20 * BEAT + late + rail * MS)
        pulse.judge(20 * BEAT + late + rail * MS)
        assert pulse.silent == 0


def test_ticks_lost_before_they_were_read_are_no_evidence(pulse: Pulse) -> None:
    beat(pulse, range(1, 20), (0, 1, 2))
    now = beat(pulse, range(60, 61), (0,))
    assert now - 19 * BEAT > MOST
    assert pulse.silent == 0
    beat(pulse, range(61, 64), (0,))
    assert pulse.silent == 0b110


def test_own_sleep_is_no_silence_of_others(pulse: Pulse) -> None:
    beat(pulse, range(1, 20), (0, 1, 2))
    now = 60 * BEAT
    for tick in range(20, 61):  # socket 0 is full, the others are empty: their switches slept too
        pulse.hear(0, tick, now)
    pulse.slept(40 * BEAT, now)
    assert not pulse.judge(now)
    beat(pulse, range(61, 63), (0,))
    assert pulse.silent == 0
    beat(pulse, range(63, 64), (0,))
    assert pulse.silent == 0b110  # it has been awake for long enough


def test_a_queue_delays_but_is_not_silent(pulse: Pulse) -> None:
    delay = 20  # beats that rail 1 is behind
    for tick in range(1, 200):
        now = tick * BEAT
        pulse.hear(0, tick, now)
        pulse.hear(2, tick, now)
        if tick > delay:
            pulse.hear(1, tick - delay, now)
        pulse.judge(now)
        if tick > 2 * delay:
            assert pulse.silent == 0


def test_ticks_still_in_a_queue_are_no_evidence(pulse: Pulse) -> None:
    """The sender has stopped. Old ticks that a slow rail delivers are no evidence against a fast rail."""
    delay = 20
    for tick in range(1, 100):
        pulse.hear(0, tick, tick * BEAT)
        pulse.hear(1, tick, tick * BEAT)
        if tick > delay:
            pulse.hear(2, tick - delay, tick * BEAT)
    for tick in range(100 - delay, 100):
        now = (tick + delay) * BEAT
        pulse.hear(2, tick, now)
        pulse.judge(now)
    assert not pulse.silent & 0b011


def test_patience_is_greatest_at_first_learnt_from_gaps_and_forgotten(pulse: Pulse) -> None:
    now = beat(pulse, range(1, 3), (0, 1, 2))
    assert [pulse.patience(rail, now) for rail in range(RAILS)] == [MOST] * RAILS
    now = beat(pulse, range(3, 20), (0, 1, 2))
    assert [pulse.patience(rail, now) for rail in range(RAILS)] == [LEAST] * RAILS
    beat(pulse, range(20, 22), (0, 2))
    now = beat(pulse, range(22, 26), (0, 1, 2))  # rail 1 has missed two ticks: 30 ms
    assert [pulse.patience(rail, now) for rail in range(2)] == [LEAST, 75 * MS]
    now = beat(pulse, range(26, 45), (0, 1, 2))
    assert pulse.patience(1, now) == LEAST
    beat(pulse, range(45, 85), (0, 2))
    now = beat(pulse, range(85, 95), (0, 1, 2))
    assert pulse.patience(1, now) == LEAST, "nothing is learnt from an outage"


def test_patience_grows_with_the_lateness_of_processes() -> None:
    """Processes of this machine are sometimes 25 ms late. A switch that is such a process is not dead."""
    pulse = Pulse(options(10 * MEMORY, most_leeway=300 * MS), 0)
    now = beat(pulse, range(1, 200), (0, 1, 2))
    for tick in range(200, 203):
        now += BEAT + 25 * MS
        for rail in range(RAILS):
            pulse.hear(rail, tick, now)
    assert pulse.leeway(now) == 50 * MS
    assert [pulse.patience(rail, now) for rail in range(RAILS)] == [LEAST + 50 * MS] * RAILS
    silent_since = now
    for tick in range(203, 260):
        now += BEAT
        pulse.hear(0, tick, now)
        pulse.hear(2, tick, now)
        if pulse.judge(now):
            break
    assert pulse.silent == 0b010
    assert now - silent_since == LEAST + 50 * MS


def test_leeway_ends_with_what_it_comes_from_and_has_a_bound() -> None:
    pulse = Pulse(options(MEMORY, most_leeway=300 * MS), 0)
    beat(pulse, range(1, 20), (0, 1, 2))
    now = beat(pulse, range(20, 21), (0, 1, 2), delay=500 * MS)
    assert pulse.leeway(now) == 300 * MS
    now = beat(pulse, range(21, 40), (0, 1, 2), delay=500 * MS)
    assert pulse.leeway(now) == 0


def test_a_rail_is_heard_again_after_some_ticks_in_order(pulse: Pulse) -> None:
    beat(pulse, range(1, 20), (0, 1, 2))
    beat(pulse, range(20, 60), (0, 2))
    beat(pulse, range(60, 62), (0, 1, 2))
    assert pulse.silent == 0b010
    beat(pulse, range(62, 63), (0, 1, 2))
    assert pulse.silent == 0


def test_old_ticks_and_copies_are_no_signs_of_life(pulse: Pulse) -> None:
    beat(pulse, range(1, 20), (0, 1, 2))
    for tick in range(20, 30):
        pulse.hear(0, tick, tick * BEAT)
        pulse.hear(1, 19, tick * BEAT)
        pulse.hear(1, 3, tick * BEAT)
        pulse.judge(tick * BEAT)
    assert pulse.silent == 0b110


def test_the_deadline_is_when_silence_becomes_a_fault(pulse: Pulse) -> None:
    beat(pulse, range(1, 20), (0, 1, 2))
    assert pulse.deadline(19 * BEAT) is None
    for tick in range(20, 24):
        pulse.hear(0, tick, tick * BEAT - 5 * MS)  # evidence comes before the silence is long enough
    assert pulse.deadline(23 * BEAT) == 19 * BEAT + LEAST
    assert pulse.judge(19 * BEAT + LEAST)
    assert pulse.deadline(24 * BEAT) is None


@pytest.mark.parametrize(("loss", "most"), [(0.05, 1), (0.2, 10)])
def test_loss_is_not_death(loss: float, most: int) -> None:
    """Five minutes of loss cause few suspicions, because the pulse learns a rail's gaps."""
    pulse = Pulse(options(5_000 * MS), 0)
    draw = random.Random(1)
    suspicions = 0
    for tick in range(1, 30_000):
        for rail in range(RAILS):
            if draw.random() >= loss:
                pulse.hear(rail, tick, tick * BEAT)
        before = pulse.silent
        pulse.judge(tick * BEAT)
        suspicions += (pulse.silent & ~before).bit_count()
    assert suspicions <= most


# --- the times of docs/design/recovery.md ---

ROOT = Path(__file__).parents[2]
MILLISECONDS = {"kMillisecond": 1, "kSecond": 1000}
CONSTANT = re.compile(r"constexpr Duration (k\w+) =\s*(?:(\d+) \* )?(kMillisecond|kSecond)(?: / (\d+))?;")


def test_the_table_of_times_is_the_codes() -> None:
    header = (ROOT / "native/core/timing.hpp").read_text()
    code = {
        name: int(factor or 1) * MILLISECONDS[unit] // int(divisor or 1)
        for name, factor, unit, divisor in CONSTANT.findall(header)
    }
    docs = (ROOT / "docs/design/recovery.md").read_text()
    table = {name: int(value) for name, value in re.findall(r"^\| (k\w+) \| (\d+) \|", docs, re.MULTILINE)}
    assert len(code) > 10
    assert table == code
