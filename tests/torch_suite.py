# SPDX-License-Identifier: Apache-2.0
"""Runs PyTorch's own distributed tests, which its wheel brings: `python torch_suite.py [--cuda] [NAME …]`.

Each test runs on railweave in three processes over loopback. NAME is the name of a test method and may
contain `*`. By default the script runs the tests that Gloo supports. With `--cuda` it runs the tests that
NCCL supports, and all ranks share one GPU. Tests that use a rank as the number of a GPU then fail. The exit
status is 1 if a test fails. The script needs `expecttest`.
"""

from __future__ import annotations

import fnmatch
import multiprocessing
import os
import sys
import tempfile
import unittest
from collections import Counter
from pathlib import Path
from typing import Any

RANKS = "3"
CUDA = "--cuda" in sys.argv  # a spawned process has the same arguments


class Backend(str):
    """The name of railweave's back end. It also compares equal to the back end whose tests run."""

    __slots__ = ()
    passes_for = "nccl" if CUDA else "gloo"

    def __eq__(self, other: object) -> bool:
        return str.__eq__(self, other) or other == self.passes_for

    def __ne__(self, other: object) -> bool:
        return not self == other

    def __hash__(self) -> int:
        return hash(self.passes_for)


class Instead:
    """A module with some names replaced."""

    def __init__(self, module: Any, **names: Any) -> None:
        self._module = module
        self.__dict__ |= names

    def __getattr__(self, name: str) -> Any:
        return getattr(self._module, name)


def share_one_gpu() -> None:
    """Let tests that want one GPU per rank run with the first GPU."""
    import torch  # noqa: PLC0415
    from torch.testing._internal import common_distributed  # noqa: PLC0415

    common_distributed.skip_if_no_gpu = lambda test: test
    common_distributed.skip_if_lt_x_gpu = lambda *_, **__: lambda test: test
    common_distributed.init_multigpu_helper = lambda size, _: {rank: [0] for rank in range(size)}
    from torch.testing._internal.distributed import distributed_test as upstream  # noqa: PLC0415

    def set_device(_: Any) -> None:
        torch.cuda.set_device(0)

    cuda = Instead(torch.cuda, device_count=lambda: int(RANKS), set_device=set_device)
    upstream.torch = Instead(torch, cuda=cuda)


def spawned(target: Any, args: Any, **others: Any) -> Any:
    """Return a spawned process for a rank. A forked process could not use CUDA."""
    del target
    return multiprocessing.get_context("spawn").Process(target=run_rank, args=args, **others)


def run_rank(*given: Any, **named: Any) -> None:
    """Run a test as one rank."""
    os.environ.pop("INIT_METHOD", None)  # from the parent; a forked process would not see it either
    tests()._run(*given, **named)


def tests() -> Any:
    """Return a class of PyTorch's tests, on railweave."""
    if CUDA:
        share_one_gpu()
    import torch.distributed as dist  # noqa: PLC0415
    from torch.testing._internal.distributed import distributed_test as upstream  # noqa: PLC0415

    import railweave.torch  # noqa: F401, PLC0415 - registers the back end

    upstream.BACKEND = Backend("railweave")

    class OnRailweave(upstream.TestDistBackend, upstream.DistributedTest._DistTestBase):  # type: ignore[misc]
        def setUp(self) -> None:
            super().setUp()
            # Before it calls a group's monitored_barrier, torch asks whether the group is Gloo's.
            asked_by_name = "monitored_barrier" in self._testMethodName
            dist.Backend.RAILWEAVE = upstream.BACKEND if asked_by_name else "railweave"
            self._start_processes(spawned if CUDA else multiprocessing.get_context("fork").Process)

    return OnRailweave


def suite(patterns: list[str]) -> unittest.TestSuite:
    """Return the tests whose names match."""
    kind = tests()
    names = unittest.TestLoader().getTestCaseNames(kind)
    chosen = [name for name in names if any(fnmatch.fnmatch(name, pattern) for pattern in patterns)]
    return unittest.TestSuite(kind(name) for name in chosen)


def main() -> int:
    """Run the chosen tests and print their outcomes."""
    with tempfile.TemporaryDirectory() as folder:
        Path(folder, "barrier").mkdir()
        os.environ |= {"BACKEND": Backend.passes_for, "WORLD_SIZE": RANKS, "TEMP_DIR": folder}
        patterns = [pattern for pattern in sys.argv[1:] if pattern != "--cuda"]
        result: Any = unittest.TextTestRunner(verbosity=2).run(suite(patterns or ["test_*"]))
    failed = [test.id().rpartition(".")[2] for test, _ in [*result.failures, *result.errors]]
    for reason, count in Counter(reason for _, reason in result.skipped).most_common():
        print(f"skipped {count}: {reason}")
    passed = result.testsRun - len(result.skipped) - len(failed)
    print(f"{passed} passed, {len(result.skipped)} skipped, {len(failed)} failed", *failed)
    return bool(failed)


if __name__ == "__main__":
    sys.exit(main())
