# SPDX-License-Identifier: Apache-2.0
"""Times and futures of a process group's calls."""

from __future__ import annotations

import importlib.util
import threading
import weakref
from typing import Any

import pytest

pytestmark = pytest.mark.skipif(importlib.util.find_spec("torch") is None, reason="PyTorch is not installed")
DEADLINE_S = 20.0


def test_a_call_that_is_waited_for_and_whose_future_is_completed_counts_once() -> None:
    from railweave.torch.overlap import Kind, Overlap  # noqa: PLC0415

    overlap = Overlap()
    kind = Kind("all_reduce", "sum", "float32", 4096)
    timing = overlap.begin(kind)
    with timing.waiting():
        pass
    timing.ended()
    times = overlap.times()[kind]
    assert times.calls == 1
    assert 0 <= times.exposed_s <= times.total_s
    overlap.begin(kind).ended()
    assert times.calls == 1, "what has been read changes"
    assert overlap.times()[kind].calls == 2


def test_a_completed_call_keeps_no_tensors() -> None:
    import torch  # noqa: PLC0415

    from railweave.torch.works import Completions  # noqa: PLC0415

    class Ended:
        def complete(self, end: Any) -> None:
            end.set_result(None)

    completions = Completions()
    work: Any = Ended()
    freed = threading.Event()
    weakref.finalize(work, freed.set)
    end = torch.futures.Future()
    completions.add(work, end)
    end.wait()
    del work
    assert freed.wait(DEADLINE_S)
    completions.close()
