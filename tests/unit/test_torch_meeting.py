# SPDX-License-Identifier: Apache-2.0
"""Ranks of a process group find each other in a store, and the interfaces between them."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from railweave.hosts.errors import InvalidOption, JoinTimeout
from railweave.hosts.events import RailOffer
from railweave.hosts.options import RailSpec

if importlib.util.find_spec("torch") is None:
    pytest.skip("PyTorch is not installed", allow_module_level=True)

import torch.distributed as dist

from railweave.torch import gathering
from railweave.torch.gathering import Place, gather, host_of, interface_among, place_of
from railweave.torch.meeting import Meeting

DEADLINE_S = 20.0


def by_rank(ranks: list[int], call: Callable[[int], Any]) -> list[Any]:
    """Call a function for each rank, at the same time. Return the results, or errors."""

    def one(rank: int) -> Any:
        try:
            return call(rank)
        except (InvalidOption, JoinTimeout) as error:
            return error

    with ThreadPoolExecutor(len(ranks)) as pool:
        return list(pool.map(one, ranks))


def gathered(store: Any, ranks: list[int], size: int, deadline_s: float = DEADLINE_S) -> list[Any]:
    """Return the job and the places that each of these ranks gets, or its error."""
    return by_rank(ranks, lambda rank: gather(store, rank, size, Place("this", f"10.0.0.{rank}"), deadline_s))


def test_all_get_the_same_job_and_all_places_whatever_earlier_runs_have_left() -> None:
    store, jobs = dist.HashStore(), set()
    for rank in (1, 2):
        store.set(f"railweave/hello/{rank}", "of a rank that has died")
    for _ in range(3):
        (job, places), *others = gathered(store, [0, 1, 2], 3)
        assert all(other == (job, places) for other in others)
        assert job.startswith("torch.")
        assert [each.address for each in places] == ["10.0.0.0", "10.0.0.1", "10.0.0.2"]
        jobs.add(job)
    assert len(jobs) == 3


def test_a_rank_that_begins_again_is_welcomed_again() -> None:
    store = dist.HashStore()
    (gone,) = gathered(store, [1], 2, deadline_s=0.05)
    assert "missing: 0" in str(gone)
    (first, _), (second, _) = gathered(store, [0, 1], 2)
    assert first == second


@pytest.mark.parametrize(("ranks", "missing"), [([0, 1], "2, 3"), ([1, 2], "0")])
def test_those_who_are_missing_are_named(ranks: list[int], missing: str) -> None:
    for error in gathered(dist.HashStore(), ranks, 4, deadline_s=0.3):
        assert f"not all ranks have joined within 0.3 s; missing: {missing}: expected 4 ranks" in str(error)


def test_ranks_of_one_machine_meet_on_loopback() -> None:
    for address in ("127.0.0.1", "", "192.0.2.7"):  # no interface has the last one
        assert interface_among([Place("this", address)] * 2, 1) == "lo"


def test_loopback_is_never_the_way_to_another_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    """Rank 0's own name often means loopback. Then the interface towards rank 1 counts."""
    this = Place("this", "127.0.0.1")
    for rank in range(2):
        with pytest.raises(InvalidOption, match=r"rank 0 finds no interface .* set RAILWEAVE_RAILS"):
            interface_among([this, Place("other", "127.0.0.1")], rank)
    monkeypatch.setattr(gathering, "_interface_with", lambda _: "")
    with pytest.raises(
        InvalidOption, match=r"rank 0 reaches the others by .*192\.0\.2\.1.* set RAILWEAVE_RAILS"
    ):
        interface_among([this, Place("other", "192.0.2.1")], 0)


def test_a_place_is_on_the_way_to_the_store_else_on_the_first_rail(monkeypatch: pytest.MonkeyPatch) -> None:
    store = dist.HashStore()
    monkeypatch.setenv("MASTER_ADDR", "no.such.host.invalid")
    assert place_of(store, []).address == ""
    assert place_of(store, [RailSpec("tcp", "tcp", "lo")]).address == "127.0.0.1"
    monkeypatch.setenv("MASTER_ADDR", "127.0.1.1")
    assert place_of(store, []).address == "127.0.0.1"
    monkeypatch.delenv("MASTER_ADDR")
    assert place_of(store, []) == place_of(store, [])


def test_the_host_of_a_store_is_that_of_its_server() -> None:
    server = dist.TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
    assert host_of(dist.PrefixStore("a", dist.PrefixStore("b", server))) == "127.0.0.1"


# ------------------------------------------------------------ what they offer

TCP = RailOffer("left", "tcp", "left", "10.0.0.1", "aa:bb:cc:dd:ee:ff", 4000, rate_bps=1000, control_port=9)
RDMA = RailOffer("right", "rdma", "right", "10.1.0.1", queue_pairs=(7, 8))
INA = RailOffer("net", "ina", "net", "10.2.0.1")


def meet(offers: list[list[RailOffer]], size: int, deadline_s: float = DEADLINE_S) -> list[Any]:
    """Return each rank's meeting, or the error that it got."""
    store = dist.HashStore()
    return by_rank(
        list(range(len(offers))), lambda rank: Meeting(store, rank, size, offers[rank], deadline_s)
    )


def test_all_know_what_the_others_offer_and_trees_need_a_controller() -> None:
    first, second = meet([[TCP, RDMA, INA]] * 2, 2)
    assert first.members == second.members == {0: (TCP, RDMA, INA), 1: (TCP, RDMA, INA)}
    assert first.secret == second.secret
    assert len(first.secret) == 32
    assert not first.groups
    assert list(first.refusals) == ["net"]
    assert "RAILWEAVE_CONTROLLER" in first.refusals["net"]


@pytest.mark.parametrize(
    ("offers", "size", "kind", "words"),
    [
        ([[TCP], [TCP]], 4, JoinTimeout, "missing: 2, 3"),
        ([[TCP], [RDMA], [TCP]], 3, InvalidOption, "rdma"),  # the ranks differ
    ],
)
def test_all_ranks_learn_why_they_cannot_meet(
    offers: list[list[RailOffer]], size: int, kind: type[Exception], words: str
) -> None:
    for error in meet(offers, size, deadline_s=0.2 if kind is JoinTimeout else DEADLINE_S):
        assert isinstance(error, kind)
        assert words in str(error)


@pytest.mark.parametrize("said", ["{", "[1]", '[{"name": "tcp"}]', '[{"queue_pairs": [], "colour": "red"}]'])
def test_a_rank_of_another_version_is_named(said: str) -> None:
    store = dist.HashStore()
    store.set("rails/1", said)
    with pytest.raises(InvalidOption, match=r"rank 1 describes its rails as .*: expected the same version"):
        Meeting(store, 0, 2, [TCP], DEADLINE_S)
