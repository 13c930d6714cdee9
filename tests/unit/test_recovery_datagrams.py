# SPDX-License-Identifier: Apache-2.0
"""Recovery's datagrams: a round trip returns the same value, and an attacker's datagrams change nothing."""

from __future__ import annotations

import random
from collections.abc import Iterable

import pytest

from railweave._rigs import recovery
from railweave._rigs.recovery import Datagram, Options, Recovery, Refusal
from railweave._rigs.secret import authenticate, derive_key

SECRET = bytes(range(32))
RANKS, RAILS = 4, 3
CODE = 16  # bytes
BEAT = 10_000_000


def beat() -> recovery.Heartbeat:
    body = recovery.Heartbeat()
    body.tick, body.first = 77, 1
    body.standings = [recovery.Standing(rank, 10 + rank, 20 + rank) for rank in range(RANKS)]
    return body


def stamped(state: recovery.Status | recovery.Decision) -> recovery.Stamped:
    body = recovery.Stamped()
    stamp = body.stamp
    stamp.serial, stamp.seen, stamp.answer = 9, 5, True
    body.stamp, body.state = stamp, state
    return body


def report() -> recovery.Status:
    state = recovery.Status()
    channels = [recovery.ChannelStatus() for _ in range(RAILS)]
    channels[1].state, channels[1].incarnation, channels[1].next_chunks = (
        recovery.ChannelState.HALTED,
        3,
        [2**63, 1],
    )
    channels[2].unfit, channels[2].broken, channels[2].reason = True, True, "a connection broke"
    state.epoch, state.channels = 6, channels
    state.prepared = recovery.Prepared(2, recovery.Position(12, [10, 11, 12], [1, 2, 3]))
    return state


def order() -> recovery.Decision:
    state = recovery.Decision()
    committed = state.committed
    committed.epoch, committed.alive, committed.boundary = 6, 0b101, 12
    reaches = []
    for rail in range(RAILS):
        reach = recovery.Reach()
        reach.done, reach.rank, reach.least = 7 + rail, rail, 5
        reaches.append(reach)
    committed.main, committed.repair = reaches, reaches[::-1]
    channels = [recovery.ChannelDecision() for _ in range(RAILS)]
    channels[1].active, channels[1].incarnation = True, 3
    channels[1].reason, channels[1].bases = "rank 2: no carrier", [4, 5]
    state.committed, state.channels = committed, channels
    state.prepare = recovery.PrepareRequest(2, 0b111)
    return state


def farewell() -> recovery.Goodbye:
    body = recovery.Goodbye()
    body.rank, body.dead, body.reason = 3, True, "silent on all rails for 5.0 s"
    return body


def inquiry() -> recovery.Inquiry:
    body = recovery.Inquiry()
    body.answer = True
    return body


BODIES = {
    "inquiry": inquiry(),
    "beat": beat(),
    "report": stamped(report()),
    "order": stamped(order()),
    "farewell": farewell(),
}


def datagram(name: str, sender: int = 2, rail: int = 1) -> Datagram:
    given = Datagram()
    given.sequence, given.sender, given.rail, given.body = 1, sender, rail, BODIES[name]
    return given


def key(receiver: int) -> bytes:
    return derive_key(SECRET, "recovery", receiver)


def shape(receiver: int = 1) -> tuple[bytes, int, int]:
    return key(receiver), RANKS, RAILS


def encoded(name: str, sender: int = 2, rail: int = 1, *, to: int = 1) -> bytes:
    return recovery.encode(datagram(name, sender, rail), *shape(to))


def sealed(datagram: bytes | bytearray) -> bytes:
    """Return the changed datagram with a valid code."""
    said = bytes(datagram[:-CODE])
    return said + authenticate(key(1), said)


@pytest.mark.parametrize("name", BODIES)
def test_what_is_encoded_comes_back_and_nothing_else_is_believed(name: str) -> None:
    whole = encoded(name)
    assert recovery.decode(whole, *shape()) == datagram(name)
    for other in (derive_key(SECRET[::-1], "recovery", 1), key(2)):
        assert recovery.decode(whole, other, RANKS, RAILS) == Refusal.STRANGER
    for size in range(len(whole)):
        assert recovery.decode(whole[:size], *shape()) == Refusal.STRANGER
        if size > CODE:
            assert recovery.decode(sealed(whole[:size]), *shape()) == Refusal.MALFORMED
    assert recovery.decode(sealed(whole + b"\0"), *shape()) == Refusal.MALFORMED
    for at in range(8 * len(whole)):
        spoilt = bytearray(whole)
        spoilt[at // 8] ^= 1 << at % 8
        assert recovery.decode(bytes(spoilt), *shape()) == Refusal.STRANGER


@pytest.mark.parametrize(
    ("at", "value"),
    [(0, 1), (9, 5), (10, 1), (11, RANKS), (12, RAILS)],  # offsets 9 to 12 follow version and number
    ids=["version", "kind", "sender, high", "sender", "rail"],
)
def test_impossible_headers_are_refused(at: int, value: int) -> None:
    spoilt = bytearray(encoded("farewell"))
    spoilt[at] = value
    assert recovery.decode(sealed(spoilt), *shape()) == Refusal.MALFORMED


@pytest.mark.parametrize("name", BODIES)
def test_whatever_is_accepted_says_the_same_again(name: str) -> None:
    """A decoded datagram, encoded again, has the same length and decodes to the same value."""
    draw, accepted = random.Random(name), 0
    for _ in range(1500):
        spoilt = bytearray(encoded(name))
        for _ in range(draw.randint(1, 3)):
            spoilt[draw.randrange(len(spoilt) - CODE)] = draw.choice((0, 1, 2, 255, draw.randrange(256)))
        decoded = recovery.decode(sealed(spoilt), *shape())
        if isinstance(decoded, Refusal):
            continue
        accepted += 1
        again = recovery.encode(decoded, *shape())
        assert len(again) == len(spoilt)
        assert recovery.decode(again, *shape()) == decoded
    assert accepted > 30


def test_reasons_are_cut_and_made_printable() -> None:
    given = datagram("farewell")
    body = farewell()
    body.reason = "a\nb\x7f\N{EURO SIGN}" + 200 * "x"
    given.body = body
    decoded = recovery.decode(recovery.encode(given, *shape()), *shape())
    assert decoded.body.reason == ("a?b????" + 200 * "x")[: recovery.MAX_REASON]


def test_the_greatest_states_fit_a_datagram() -> None:
    ranks, rails = 1024, 16
    state = recovery.Status()
    channel = recovery.ChannelStatus()
    channel.unfit, channel.reason, channel.next_chunks = True, "x" * 300, [2**64 - 1] * 100
    state.channels = [channel] * rails
    state.prepared = recovery.Prepared(1, recovery.Position(1, [1] * rails, [1] * rails))
    given = Datagram()
    given.body = stamped(state)
    whole = recovery.encode(given, key(1), ranks, rails)
    assert len(whole) <= recovery.MAX_DATAGRAM
    assert isinstance(recovery.decode(whole, key(1), ranks, rails), Datagram)


# --- the machine ---


def machine(rank: int = 1) -> Recovery:
    return Recovery(Options(rank=rank, world_size=RANKS, rails=RAILS, secret=SECRET), 0)


@pytest.mark.parametrize(
    ("rank", "name", "sender", "source"),
    [
        (1, "beat", 2, (1, 2)),  # not of the predecessor
        (1, "order", 2, (1, 2)),  # not of rank 0
        (1, "report", 0, (1, 0)),  # not for rank 0
        (0, "order", 2, (1, 2)),  # for rank 0
        (1, "farewell", 1, (1, 1)),  # of oneself
        (1, "farewell", 2, (0, 2)),  # from another rail
        (1, "farewell", 2, (1, 3)),  # from another rank
    ],
    ids=str,
)
def test_what_a_rank_cannot_have_sent_is_counted_and_left(
    rank: int, name: str, sender: int, source: tuple[int, int]
) -> None:
    """`source` is the rail and the rank whose address the datagram comes from. All are made for rail 1."""
    target = machine(rank)
    target.receive(*source, encoded(name, sender, to=rank), 0)
    assert target.stats()["malformed"] == 1
    assert target.poll() is None


def test_a_datagram_counts_once_on_the_rail_and_for_the_rank_that_it_was_sent_to() -> None:
    target, beat = machine(), encoded("beat", sender=0)
    assert target.receive(1, 0, beat, 0) is None
    assert target.receive(1, 0, beat, 0) == Refusal.REPLAYED
    assert target.receive(2, 0, beat, 0) == Refusal.MALFORMED
    assert machine(2).receive(1, 0, beat, 0) == Refusal.STRANGER
    counts = target.stats()
    assert (counts["received"], counts["replayed"], counts["malformed"]) == (1, 1, 1)


def test_datagrams_that_overtake_each_other_count_once_each_and_far_older_ones_not_at_all() -> None:
    def numbered(number: int) -> bytes:
        given = datagram("beat", sender=0)
        given.sequence = number
        return recovery.encode(given, *shape())

    target, draw, newest, taken = machine(), random.Random(7), 0, set[int]()
    for _ in range(5000):
        number = max(1, newest + draw.randint(-100, 10) if draw.random() < 0.9 else newest + 70)
        told = target.receive(1, 0, numbered(number), 0)
        fresh = number not in taken and number > newest - 64
        assert told == (None if fresh else Refusal.REPLAYED)
        taken.add(number)
        newest = max(newest, number)


class Prober:
    """Rank 1. Its successor, rank 2, may be dead. Time advances in beats."""

    def __init__(self) -> None:
        self.machine, self.now = machine(), 0
        self.sent: list[tuple[int, bytes]] = []  # rails and datagrams to rank 2 in the last beat
        self.lost: recovery.PeerLost | None = None

    def beat(self, times: int = 1) -> None:
        for _ in range(times):
            self.now += BEAT
            self.machine.expire(self.now)
            while (event := self.machine.poll()) is not None:
                self.lost = event
            self.sent = []
            while (sent := self.machine.transmit(self.now)) is not None:
                self.sent += [(sent[0], sent[2])] * (sent[1] == 2)

    def refuse(self, rail: int, quoted: bytes) -> Refusal | None:
        return self.machine.unreachable(rail, 2, quoted, self.now)

    def inquiries(self) -> list[int]:
        """Return the rails on which rank 1 asks rank 2 whether it is alive."""
        decoded = [recovery.decode(data, *shape(2)) for _, data in self.sent]
        return [each.rail for each in decoded if isinstance(each.body, recovery.Inquiry)]


def test_refusals_that_do_not_quote_what_was_sent_prove_nothing() -> None:
    prober, draw = Prober(), random.Random(3)
    for _ in range(400):  # refusals would have proved a loss long before
        prober.beat()
        assert len(prober.inquiries()) <= RAILS
        for rail, sent in prober.sent:
            other = recovery.encode(datagram("inquiry", sender=0, rail=rail), *shape(2))
            for quoted in (b"", draw.randbytes(40), sent[:-1], bytes(8) + sent[8:], other):
                assert prober.refuse(rail, quoted) == Refusal.STRANGER
            assert prober.refuse((rail + 1) % RAILS, sent) == Refusal.STRANGER
    assert prober.lost is None
    assert prober.machine.stats()["strangers"] > 400 * RAILS


@pytest.mark.parametrize("refusing", [RAILS, RAILS - 1])
def test_a_rank_that_all_rails_refuse_and_that_does_not_answer_is_lost_soon(refusing: int) -> None:
    prober = Prober()
    prober.beat(100)
    for _ in range(14):
        prober.beat()
        for rail, sent in prober.sent:
            assert rail >= refusing or prober.refuse(rail, sent) is None
        assert prober.lost is None
    prober.beat(3)
    if refusing < RAILS:
        assert prober.lost is None
        return
    assert prober.lost is not None
    assert (prober.lost.rank, prober.lost.reason[:14]) == (2, "nobody listens")


@pytest.mark.parametrize("silent", [True, False])
def test_a_rank_that_answers_lives_whatever_its_address_refuses(silent: bool) -> None:
    prober = Prober()
    for number in range(1, 400):
        prober.beat()
        for rail, sent in prober.sent:
            prober.refuse(rail, sent)
        if not silent and prober.inquiries():
            given = datagram("inquiry", sender=2, rail=0)
            given.sequence = number
            assert prober.machine.receive(0, 2, recovery.encode(given, *shape()), prober.now) is None
    assert (prober.lost is not None) == silent


def test_a_rank_that_is_asked_answers_once_for_all_rails() -> None:
    target = machine()
    asked = datagram("inquiry", sender=0)
    asked.body = recovery.Inquiry()
    for rail in range(RAILS):
        asked.rail = rail
        assert target.receive(rail, 0, recovery.encode(asked, *shape()), 0) is None
    answers = []
    while (sent := target.transmit(0)) is not None:
        decoded = recovery.decode(sent[2], *shape(sent[1]))
        if sent[1] == 0 and isinstance(decoded.body, recovery.Inquiry):
            assert decoded.body.answer
            answers.append(sent[0])
    assert answers == list(range(RAILS))


def test_refusals_age_and_copies_of_one_count_once() -> None:
    prober = Prober()
    for _ in range(3):  # 15 s in total: at first the predecessor may be silent for 20 s
        prober.beat()
        for rail, sent in prober.sent[:RAILS]:
            assert prober.refuse(rail, sent) is None
            assert prober.refuse(rail, sent) == Refusal.REPLAYED
        old = prober.sent
        prober.beat(510)  # 5.1 s
        for rail, sent in old:
            assert prober.refuse(rail, sent) == Refusal.REPLAYED
    assert prober.lost is None


@pytest.mark.parametrize(("rank", "name", "sender"), [(1, "order", 0), (0, "report", 2)])
def test_states_that_cannot_be_are_counted(rank: int, name: str, sender: int) -> None:
    target = machine(rank)
    target.receive(1, sender, encoded(name, sender, to=rank), 0)
    assert target.stats()["violations"] == 1
    assert (target.poll(), target.epoch, target.alive) == (None, 0, 0b111)


def test_a_rank_does_not_believe_that_it_is_dead_itself() -> None:
    target = machine(3)
    target.receive(1, 2, encoded("farewell", to=3), 0)
    assert target.stats()["received"] == 1
    assert target.poll() is None
    other = machine(1)
    other.receive(1, 2, encoded("farewell"), 0)
    lost = other.poll()
    assert (lost.rank, lost.reason) == (3, "silent on all rails for 5.0 s")


@pytest.mark.parametrize(
    ("field", "value", "message"),
    [
        ("world_size", 1, "world size 1; 2 to 1024 ranks"),
        ("rank", 4, "rank 4 of 4"),
        ("rails", 17, "17 rails; 1 to 16"),
        ("peer_timeout", 0, "times must be positive"),
    ],
)
def test_options_out_of_range_are_refused(field: str, value: int, message: str) -> None:
    given = {"rank": 1, "world_size": RANKS, "rails": RAILS} | {field: value}
    with pytest.raises(ValueError, match=message):
        Recovery(Options(**given), 0)


def around(machines: list[Recovery], beats: Iterable[int], stopped: int = -1) -> dict[int, dict[str, int]]:
    """Send beats around the ring. Rank `stopped` reads and sends nothing.

    Return the calls that all ranks have reached, as each rank reports them.
    """
    told: dict[int, dict[str, int]] = {rank: {} for rank in range(len(machines))}
    running = [(rank, each) for rank, each in enumerate(machines) if rank != stopped]
    for number in beats:
        now = number * BEAT
        for rank, each in running:
            each.expire(now)
            while (sent := each.transmit(now)) is not None:
                if sent[1] != stopped:
                    machines[sent[1]].receive(0, rank, sent[2], now)
        for rank, each in running:
            while (event := each.poll()) is not None:
                told[rank][type(event).__name__] = getattr(event, "op", -1)
    return told


def ring(ranks: int) -> list[Recovery]:
    return [
        Recovery(Options(rank=rank, world_size=ranks, rails=1, secret=SECRET), 0) for rank in range(ranks)
    ]


@pytest.mark.parametrize("ranks", [2, 65])
def test_progress_goes_around_the_ring(ranks: int) -> None:
    machines = ring(ranks)
    for rank, each in enumerate(machines):
        each.completed(5 + rank % 2)
        each.submitted(7 + rank % 3)
    told = around(machines, range(1, 3 * ranks + 2))
    assert told == {rank: {"AllCompleted": 5, "AllSubmitted": 7} for rank in range(ranks)}


@pytest.mark.parametrize("ranks", [3, 70])
def test_a_process_that_stands_still_is_known_everywhere(ranks: int) -> None:
    machines = ring(ranks)
    wide = ranks * 2 + 40  # beats until all ranks have all news
    around(machines, range(1, wide))
    before = [each.ran for each in machines]
    assert min(before) >= (wide - 2 * ranks) * BEAT  # the age of news about a rank
    around(machines, range(wide, 3 * wide), stopped=1)
    # The others get only the news that was in the ring when rank 1 stopped.
    assert all(each.ran - before[rank] <= 2 * ranks * BEAT for rank, each in enumerate(machines) if rank != 1)


def test_a_clock_goes_on_although_processes_stand_still_again_and_again() -> None:
    """The machine stops all processes for 120 ms at a time, and lets them run for 50 ms in between."""
    machines = ring(3)
    times, ran, standstill = 20, 5 * BEAT, 12 * BEAT
    around(machines, [17 * time + beat for time in range(times) for beat in range(5)])
    counted = 5 * BEAT  # at most, per standstill
    for each in machines:
        assert times * ran - standstill <= each.ran <= times * (ran + counted)
