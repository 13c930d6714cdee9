# SPDX-License-Identifier: Apache-2.0
"""Ranks of a process group that find each other in a store, and the interfaces between them."""

from __future__ import annotations

import importlib.util
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

import pytest

from railweave.hosts.errors import InvalidOption, JoinTimeout
from railweave.hosts.options import RailSpec

if TYPE_CHECKING:
    from railweave.torch.gathering import Place

pytestmark = pytest.mark.skipif(importlib.util.find_spec("torch") is None, reason="PyTorch is not installed")
DEADLINE_S = 20.0


def place(machine: str = "this", address: str = "127.0.0.1") -> Place:
    from railweave.torch.gathering import Place  # noqa: PLC0415

    return Place(machine, address)


def new_store() -> Any:
    import torch.distributed as dist  # noqa: PLC0415

    return dist.HashStore()


def gathered(store: Any, ranks: list[int], size: int, deadline_s: float = DEADLINE_S) -> list[Any]:
    """Return the job and the places that each of these ranks gets, or its error."""
    from railweave.torch.gathering import gather  # noqa: PLC0415

    def one(rank: int) -> Any:
        try:
            return gather(store, rank, size, place(address=f"10.0.0.{rank}"), deadline_s)
        except JoinTimeout as error:
            return error

    with ThreadPoolExecutor(len(ranks)) as pool:
        return list(pool.map(one, ranks))


def test_all_get_the_same_job_and_all_places() -> None:
    jobs = [job for job, _ in gathered(new_store(), [0, 1, 2], 3)]
    assert jobs[0].startswith("torch.")
    assert len(set(jobs)) == 1
    for _, places in gathered(new_store(), [2, 1, 0], 3):
        assert [each.address for each in places] == ["10.0.0.0", "10.0.0.1", "10.0.0.2"]


def test_what_earlier_runs_have_left_is_nobodys_word() -> None:
    store = new_store()
    jobs = set()
    for rank in (1, 2):
        store.set(f"railweave/hello/{rank}", "of a rank that has died")
    for _ in range(3):
        ((job, _), *others) = gathered(store, [0, 1, 2], 3)
        assert all(other == job for other, _ in others)
        jobs.add(job)
    assert len(jobs) == 3


def test_a_rank_that_begins_again_is_welcomed_again() -> None:
    from railweave.torch.gathering import gather  # noqa: PLC0415

    store = new_store()
    (gone,) = gathered(store, [1], 2, deadline_s=0.05)
    assert "missing: 0" in str(gone)
    with ThreadPoolExecutor(1) as pool:
        first = pool.submit(gather, store, 0, 2, place(), DEADLINE_S)
        job, _ = gather(store, 1, 2, place(), DEADLINE_S)
        assert first.result()[0] == job


@pytest.mark.parametrize("ranks", [[0, 1], [1, 2]])
def test_those_who_are_missing_are_named(ranks: list[int]) -> None:
    missing = "2, 3" if 0 in ranks else "0"
    for error in gathered(new_store(), ranks, 4, deadline_s=0.3):
        assert isinstance(error, JoinTimeout)
        assert f"not all ranks have joined within 0.3 s; missing: {missing}: expected 4 ranks" in str(error)


def test_ranks_of_one_machine_meet_on_loopback() -> None:
    from railweave.torch.gathering import interface_among  # noqa: PLC0415

    for address in ("127.0.0.1", "", "192.0.2.7"):  # no interface has the last one
        assert interface_among([place(address=address)] * 2, 1) == "lo"


def test_loopback_is_never_the_way_to_another_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    """Rank 0's own name often means loopback. Then the interface towards rank 1 counts."""
    from railweave.torch import gathering  # noqa: PLC0415

    interface_among = gathering.interface_among

    places = [place(), place("other", "127.0.0.1")]
    for rank in range(2):
        with pytest.raises(InvalidOption, match=r"rank 0 finds no interface .* set RAILWEAVE_RAILS"):
            interface_among(places, rank)
    monkeypatch.setattr(gathering, "_interface_with", lambda _: "")
    with pytest.raises(
        InvalidOption, match=r"rank 0 reaches the others by .*192\.0\.2\.1.* set RAILWEAVE_RAILS"
    ):
        interface_among([place(), place("other", "192.0.2.1")], 0)


def test_a_place_is_on_the_way_to_the_store_else_on_the_first_rail(monkeypatch: pytest.MonkeyPatch) -> None:
    from railweave.torch.gathering import place_of  # noqa: PLC0415

    monkeypatch.setenv("MASTER_ADDR", "no.such.host.invalid")
    assert place_of(new_store(), []).address == ""
    assert place_of(new_store(), [RailSpec("tcp", "tcp", "lo")]).address == "127.0.0.1"
    monkeypatch.setenv("MASTER_ADDR", "127.0.1.1")
    assert place_of(new_store(), []).address == "127.0.0.1"
    monkeypatch.delenv("MASTER_ADDR")
    assert place_of(new_store(), []) == place_of(new_store(), [])


def test_the_host_of_a_store_is_that_of_its_server() -> None:
    import torch.distributed as dist  # noqa: PLC0415

    from railweave.torch.gathering import host_of  # noqa: PLC0415

    server = dist.TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
    assert host_of(dist.PrefixStore("a", dist.PrefixStore("b", server))) == "127.0.0.1"
