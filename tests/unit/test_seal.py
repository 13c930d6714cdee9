# SPDX-License-Identifier: Apache-2.0
"""Seals add up like lanes. A seal holds only for the sum of exactly one contribution per rank."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from railweave._native.ina import SEAL_LANES
from railweave._rigs.ina import Counts, Seal, seal_primes

SECRET, OTHER_SECRET = bytes(range(32)), bytes(32)
TREE, CHUNK, BOUND = 5, 1000, 1 << 63
WORLDS = st.one_of(st.integers(1, 9), st.sampled_from([64, 128, 1023]))

Lanes = NDArray[np.int64]


def sealed(data: Lanes, rank: int, counts: Counts | None = None, bound: int = BOUND) -> Lanes:
    """Return one rank's contribution as numbers that do not wrap."""
    world_size, lanes = len(data), data.shape[1] + SEAL_LANES
    seal = Seal(SECRET, TREE, rank, world_size, lanes)
    packet = seal.close(data[rank].astype(">i4").tobytes(), counts or Counts(), CHUNK, bound)
    signed = np.frombuffer(packet, ">i4").astype(np.int64)
    return np.concatenate([signed[:-3], np.frombuffer(packet, ">u4")[-3:]])


def as_bytes(lanes: Lanes) -> bytes:
    """Return the lanes as a switch computes them, modulo 2^32."""
    return (lanes % 2**32).astype(">u4").tobytes()


def holds(lanes: Lanes, world_size: int, *, rank: int = 0, tree: int = TREE, secret: bytes = SECRET) -> bool:
    seal = Seal(secret, tree, rank, world_size, len(lanes))
    return bool(seal.holds(as_bytes(lanes), CHUNK, BOUND))


def contributions(seed: int, world_size: int, count: int) -> Lanes:
    """Return values with sums over all ranks in the range of int32. Some sums reach its limits."""
    most = (2**31 - 1) // world_size
    generator = np.random.default_rng(seed)
    data = generator.integers(-most, most, (world_size, count), endpoint=True)
    data[:, 0] = most
    data[:, -1] = -most
    return data


@settings(max_examples=60, deadline=None)
@given(world_size=WORLDS, count=st.sampled_from([1, 2, 28, 252, 1020]), seed=st.integers(0, 2**32))
def test_the_sum_of_all_ranks_holds_on_each(world_size: int, count: int, seed: int) -> None:
    data = contributions(seed, world_size, count)
    ones = Counts(agreeing=1, nonfinite=1, overflowing=1)
    total = np.sum([sealed(data, rank, ones) for rank in range(world_size)], axis=0)
    assert (total[-3:] < 2**32).all(), "tags do not wrap"
    for rank in {0, world_size // 2, world_size - 1}:
        assert holds(total, world_size, rank=rank)
    counts = Seal(SECRET, TREE, 0, world_size, count + SEAL_LANES).counts(as_bytes(total))
    assert (counts.agreeing, counts.nonfinite, counts.overflowing) == (world_size,) * 3


@pytest.mark.parametrize(
    ("rank", "tags"),
    [
        (0, [343819791, 27662504, 17953269]),
        (1, [666679413, 127742818, 623419405]),
        (2, [1243744126, 1156132605, 866793536]),
    ],
)
def test_tags_are_the_same_in_every_release(rank: int, tags: list[int]) -> None:
    """The hashes of these tags were computed one by one, with libsodium's SipHash."""
    data = np.tile(np.arange(28), (3, 1))
    assert sealed(data, rank, Counts(agreeing=1, overflowing=1))[-3:].tolist() == tags


@settings(max_examples=60, deadline=None)
@given(
    world_size=st.integers(2, 9),
    times=st.lists(st.integers(0, 2), min_size=2, max_size=9),
    seed=st.integers(0, 2**32),
)
def test_no_other_set_of_contributions_holds(world_size: int, times: Sequence[int], seed: int) -> None:
    """Contributions of one or several ranks are missing or counted twice."""
    times = (list(times) * world_size)[:world_size]
    if set(times) == {1}:
        times[0] = 0
    data = contributions(seed, world_size, 28) // 2
    total = sum(
        (count * sealed(data, rank) for rank, count in enumerate(times)),
        start=np.zeros(28 + SEAL_LANES, np.int64),
    )
    assert not holds(total, world_size)


@settings(max_examples=100, deadline=None)
@given(world_size=st.integers(2, 128), lane=st.integers(0, 31), bit=st.integers(0, 31))
def test_no_flipped_bit_holds(world_size: int, lane: int, bit: int) -> None:
    data = contributions(world_size, world_size, 28)
    total = np.sum([sealed(data, rank) for rank in range(world_size)], axis=0) % 2**32
    total[lane] ^= 1 << bit
    assert not holds(total, world_size)


@pytest.mark.parametrize("world_size", [2, 4, 31, 1023])
def test_differences_that_cancel_in_other_rings_are_seen(world_size: int) -> None:
    """Twice 2^31 is zero modulo 2^32, and a multiple of a prime is zero modulo that prime."""
    data = contributions(1, world_size, 28) // 4
    total = np.sum([sealed(data, rank) for rank in range(world_size)], axis=0)
    for a, b in ((3, 4), (0, 27), (5, 28)):
        forged = total.copy()
        forged[[a, b]] += 2**31
        assert not holds(forged, world_size)
    for prime in seal_primes(world_size):
        forged = total.copy()
        forged[7] += prime * (1 if total[7] <= 0 else -1)
        assert not holds(forged, world_size)


def test_a_seal_holds_for_its_own_chunk_tree_and_secret_only() -> None:
    data = contributions(2, 3, 28)
    total = np.sum([sealed(data, rank) for rank in range(3)], axis=0)
    assert holds(total, 3)
    assert not holds(total, 3, tree=TREE + 1)
    assert not holds(total, 3, secret=OTHER_SECRET)
    assert not holds(total, 4)
    seal = Seal(SECRET, TREE, 0, 3, 32)
    assert not seal.holds(as_bytes(total), CHUNK + 1, BOUND)
    assert not seal.holds(as_bytes(total), CHUNK, BOUND + 1)
    assert not seal.holds(as_bytes(np.zeros(32, np.int64)), CHUNK, BOUND)
    mixed = sealed(data, 0) + sealed(data, 1) + sealed(data, 2, bound=BOUND + 1)
    assert not holds(mixed, 3), "ranks that made theirs from other exponents"


def test_the_owner_of_a_result_knows_what_it_has_not_sent() -> None:
    data = contributions(3, 4, 28)
    for owner in range(4):
        others = np.sum([sealed(data, rank) for rank in range(4) if rank != owner], axis=0)
        for rank in range(4):
            seal = Seal(SECRET, TREE, rank, 4, 32)
            assert seal.holds(as_bytes(others), CHUNK, BOUND, without_own=True) == (rank == owner)
            assert not seal.holds(as_bytes(others), CHUNK, BOUND)


def test_a_tag_says_nothing_about_the_lanes() -> None:
    """Equal lanes have different tags in different chunks, because each chunk has another pad."""
    data = np.zeros((2, 28), np.int64)
    seal = Seal(SECRET, TREE, 1, 2, 32)
    tags = {seal.close(data[1].astype(">i4").tobytes(), Counts(), chunk, BOUND)[-12:] for chunk in range(500)}
    assert len(tags) == 500


def test_only_members_write_marks() -> None:
    seal, peer = Seal(SECRET, TREE, 0, 3, 32), Seal(SECRET, TREE, 2, 3, 32)
    stranger = Seal(OTHER_SECRET, TREE, 2, 3, 32)
    for chunk in range(200):
        mark = peer.mark(chunk, 77 * chunk)
        assert seal.mark(chunk, 77 * chunk) == mark
        assert seal.by_member(chunk, mark)
    forged = [seal.by_member(chunk, stranger.mark(chunk, 77 * chunk)) for chunk in range(20_000)]
    assert sum(forged) <= 5, "2^-16 of the guesses are right"
    replayed = [seal.by_member(chunk + 1, peer.mark(chunk, 77)) for chunk in range(20_000)]
    assert sum(replayed) <= 5


@pytest.mark.parametrize("world_size", [1, 2, 3, 128, 1023])
def test_residues_of_all_ranks_fit_in_a_lane(world_size: int) -> None:
    primes = seal_primes(world_size)
    assert len(set(primes)) == len(primes) == 3
    for prime in primes:
        assert all(prime % divisor for divisor in range(2, 70_000) if divisor * divisor <= prime)
        assert world_size * (prime - 1) < 2**32


def test_packets_without_room_are_refused() -> None:
    message = "packets of 4 lanes have no room for data beside the 4 of a seal: expected more lanes"
    with pytest.raises(ValueError, match=message):
        Seal(SECRET, TREE, 0, 2, SEAL_LANES)
