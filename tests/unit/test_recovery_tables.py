# SPDX-License-Identifier: Apache-2.0
"""All states and inputs of recovery's tables, and the classes that use these tables."""

from __future__ import annotations

import pytest

from railweave._rigs.recovery import (
    ChannelDecision,
    ChannelState,
    Decision,
    Member,
    Options,
    PhaseInput,
    Position,
    PrepareRequest,
    Probation,
    Restart,
    Round,
)

MS = 1_000_000
SECOND = 1000 * MS
RAILS = 2


def options() -> Options:
    return Options(rank=1, world_size=2, rails=RAILS)


# --- readmission of a rail ---


def test_hold_doubles_with_each_failure_and_forgets_them_in_health() -> None:
    rail = Probation(options(), 0)
    now, holds = 0, []
    for _ in range(4):
        rail.apply(PhaseInput.OUT, now)
        assert rail.deadline() is None
        rail.judge(True, now)
        holds.append((rail.deadline() - now) // MS)
        now = rail.deadline()
        for given in (PhaseInput.TRY, PhaseInput.PASS, PhaseInput.ADMIT):
            rail.apply(given, now)
    assert holds == [250, 500, 1000, 1000]
    now += 3 * SECOND
    rail.apply(PhaseInput.OUT, now)
    rail.judge(True, now)
    assert rail.deadline() == now + 250 * MS


def test_hold_begins_anew_when_a_rail_is_unfit_again() -> None:
    rail = Probation(options(), 0)
    rail.apply(PhaseInput.OUT, 0)
    rail.judge(True, 10 * MS)
    rail.judge(False, 200 * MS)
    assert rail.deadline() is None
    rail.judge(True, 300 * MS)
    rail.judge(True, 400 * MS)
    assert rail.deadline() == 550 * MS


def test_a_trial_in_vain_counts_and_an_interrupted_one_does_not() -> None:
    rail = Probation(options(), 0)
    rail.apply(PhaseInput.OUT, 0)
    rail.judge(True, 0)
    rail.apply(PhaseInput.TRY, 250 * MS)
    assert rail.deadline() == 650 * MS
    rail.apply(PhaseInput.INTERRUPT, 300 * MS)
    assert rail.deadline() == 250 * MS  # the same hold as before
    rail.apply(PhaseInput.TRY, 310 * MS)
    rail.apply(PhaseInput.FAIL, 320 * MS)
    rail.judge(True, 320 * MS)
    assert rail.deadline() == 820 * MS


@pytest.mark.parametrize(
    ("before", "given"), [((), PhaseInput.TRY), ((PhaseInput.OUT,), PhaseInput.OUT)], ids=str
)
def test_a_phase_refuses_what_its_table_lacks(before: tuple[PhaseInput, ...], given: PhaseInput) -> None:
    rail = Probation(options(), 0)
    for each in before:
        rail.apply(each, 0)
    with pytest.raises(RuntimeError, match="in its phase"):
        rail.apply(given, 0)


# --- a member ---


def order(
    epoch: int,
    alive: int,
    proposal: tuple[int, int] | None = None,
    incarnation: int = 0,
    *,
    active: bool = True,
) -> Decision:
    """Return an order. With an incarnation, the order restarts rail 1, or ends its trial (`active=False`)."""
    given = Decision()
    committed = given.committed
    committed.epoch, committed.alive = epoch, alive
    given.committed = committed
    channels = [ChannelDecision() for _ in range(RAILS)]
    channels[1].incarnation, channels[1].active = incarnation, active and incarnation > 0
    given.channels = channels
    given.prepare = PrepareRequest(*proposal) if proposal else None
    return given


def events(member: Member) -> list[str]:
    """Return the names of a member's events."""
    names = []
    while (event := member.poll()) is not None:
        names.append(type(event).__name__)
    return names


def asked(alive: int = 0b01) -> Member:
    """Return a member that is frozen for these rails, and has answered."""
    member = Member(options())
    member.follow(order(0, 0b11, (1, alive)))
    member.prepared(member.poll(), Position(0, [0, 0], [0, 0]))
    return member


def test_a_member_freezes_answers_and_applies() -> None:
    member = Member(options())
    assert member.follow(order(0, 0b11, (1, 0b01)))
    freeze = member.poll()
    assert (freeze.epoch, freeze.attempt, freeze.alive) == (1, 1, 0b01)
    member.halted(1, [7])
    member.prepared(freeze, Position(5, [5, 4], [0, 0]))
    report = member.status()
    assert report.prepared.attempt == 1
    assert (report.channels[1].state, report.channels[1].next_chunks) == (ChannelState.HALTED, [7])
    assert member.follow(order(1, 0b01))
    assert events(member) == ["RailChanged", "Commit"]  # the decision is kept with its reasons
    assert member.status().prepared is None


def test_a_member_answers_only_the_newest_attempt() -> None:
    member = Member(options())
    member.follow(order(0, 0b11, (1, 0b11)))
    first = member.poll()
    member.follow(order(0, 0b11, (2, 0b10)))
    second = member.poll()
    member.prepared(first, Position(5, [5, 4], [0, 0]))
    assert (member.status().prepared, member.round) == (None, Round.PREPARING)
    member.prepared(second, Position(5, [5, 4], [0, 0]))
    assert member.status().prepared.attempt == 2


@pytest.mark.parametrize(
    "forbidden",
    [
        order(1, 0b01),  # a decision without a proposal
        order(2, 0b11),  # one decision left out
        order(0, 0b11, None, 1),  # a restart of a channel that is up
    ],
    ids=["unasked", "missed", "restart"],
)
def test_a_member_refuses_what_cannot_be(forbidden: Decision) -> None:
    member = Member(options())
    assert not member.follow(forbidden)
    assert events(member) == []
    status = member.status()
    assert (status.epoch, {channel.state for channel in status.channels}) == (0, {ChannelState.UP})


def test_a_decision_for_other_rails_than_asked_is_refused() -> None:
    member = asked()
    assert not member.follow(order(1, 0b10))
    assert member.status().epoch == 0


def test_what_broke_is_forgotten_with_the_channel() -> None:
    member = Member(options())
    member.suspect(1, "a connection broke")
    channel = member.status().channels[1]
    assert (channel.unfit, channel.broken, channel.reason) == (True, True, "a connection broke")
    member.follow(order(0, 0b11, (1, 0b01)))
    member.prepared(member.poll(), Position(0, [0, 0], [0, 0]))  # also halts channels without a report
    assert not member.status().channels[1].unfit
    member.suspect(1, "late news of the same")
    assert not member.status().channels[1].unfit


def test_a_result_of_a_halted_trial_is_nobodys() -> None:
    member = asked()
    assert member.follow(order(1, 0b01, None, 1))
    restart = next(event for event in iter(member.poll, None) if isinstance(event, Restart))
    assert (restart.rail, restart.incarnation) == (1, 1)
    assert member.follow(order(1, 0b01, None, 1, active=False))
    member.restarted(1, 1, True)
    assert member.status().channels[1].state == ChannelState.HALTING
    member.halted(1, [])
    assert member.status().channels[1].state == ChannelState.HALTED
