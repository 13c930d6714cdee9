# SPDX-License-Identifier: Apache-2.0
"""The numbers that ranks add to a sum of int32 of an algorithm rail, so that wrong sums show."""

from __future__ import annotations

import numpy as np
import pytest

from railweave.hosts.endpoints import checksum, proof


def total(parts: list[np.ndarray]) -> int:
    return int(np.sum(parts, axis=0, dtype=np.int32)[0])


@pytest.mark.parametrize("ranks", [2, 3, 8, 31])
def test_the_ranks_own_numbers_show_sums_that_are_wrong_in_the_same_way_everywhere(ranks: int) -> None:
    numbers = [proof(rank) for rank in range(ranks)]
    right = total(numbers)
    wrong = {total([np.abs(each) for each in numbers]), 0, total([np.maximum(each, 0) for each in numbers])}
    for rank in range(ranks):
        wrong.add(total([*numbers, numbers[rank]]))  # it counts twice
        wrong.add(total(numbers[:rank] + numbers[rank + 1 :]))  # it is missing
        wrong.add(int(numbers[rank][0]))  # only this one counts
    assert right not in wrong


@pytest.mark.parametrize("place", [0, 1, 999])
@pytest.mark.parametrize("bit", [0, 31])
def test_a_checksum_shows_one_wrong_number(place: int, bit: int) -> None:
    numbers = np.arange(1000, dtype=np.int32)
    wrong = numbers.copy()
    wrong.view(np.uint32)[place] ^= np.uint32(1 << bit)
    assert checksum(wrong) != checksum(numbers)
    assert checksum(numbers) + checksum(numbers) == checksum(numbers + numbers)
