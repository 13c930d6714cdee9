# SPDX-License-Identifier: Apache-2.0
"""Ranks of a process group that meet in its store."""

from __future__ import annotations

import importlib.util
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from railweave.hosts.errors import InvalidOption, JoinTimeout
from railweave.hosts.events import RailOffer

pytestmark = pytest.mark.skipif(importlib.util.find_spec("torch") is None, reason="PyTorch is not installed")
DEADLINE_S = 20.0
TCP = RailOffer("left", "tcp", "left", "10.0.0.1", "aa:bb:cc:dd:ee:ff", 4000, rate_bps=1000, control_port=9)
RDMA = RailOffer("right", "rdma", "right", "10.1.0.1", queue_pairs=(7, 8))
INA = RailOffer("net", "ina", "net", "10.2.0.1")


def meet(offers: list[list[RailOffer]], size: int, deadline_s: float = DEADLINE_S) -> list[Any]:
    """Return each rank's meeting, or the error that it got."""
    import torch.distributed as dist  # noqa: PLC0415

    from railweave.torch.meeting import Meeting  # noqa: PLC0415

    store = dist.HashStore()

    def one(rank: int) -> Any:
        try:
            return Meeting(store, rank, size, offers[rank], deadline_s)
        except (InvalidOption, JoinTimeout) as error:
            return error

    with ThreadPoolExecutor(len(offers)) as pool:
        return list(pool.map(one, range(len(offers))))


def test_all_know_what_the_others_offer() -> None:
    first, second = meet([[TCP, RDMA]] * 2, 2)
    assert first.members == second.members == {0: (TCP, RDMA), 1: (TCP, RDMA)}
    assert first.secret == second.secret
    assert len(first.secret) == 32
    assert not first.groups
    assert not first.refusals


def test_trees_need_a_controller() -> None:
    first, _ = meet([[TCP, INA]] * 2, 2)
    assert "RAILWEAVE_CONTROLLER" in first.refusals["net"]


def test_those_who_are_missing_are_named() -> None:
    for error in meet([[TCP]] * 2, 4, deadline_s=0.2):
        assert isinstance(error, JoinTimeout)
        assert "missing: 2, 3" in str(error)


def test_ranks_that_differ_all_learn_it() -> None:
    for error in meet([[TCP], [RDMA], [TCP]], 3):
        assert isinstance(error, InvalidOption)
        assert "rdma" in str(error)


@pytest.mark.parametrize("said", ["{", "[1]", '[{"name": "tcp"}]', '[{"queue_pairs": [], "colour": "red"}]'])
def test_a_rank_of_another_version_is_named(said: str) -> None:
    import torch.distributed as dist  # noqa: PLC0415

    from railweave.torch.meeting import Meeting  # noqa: PLC0415

    store = dist.HashStore()
    store.set("rails/1", said)
    with pytest.raises(InvalidOption, match=r"rank 1 describes its rails as .*: expected the same version"):
        Meeting(store, 0, 2, [TCP], DEADLINE_S)
