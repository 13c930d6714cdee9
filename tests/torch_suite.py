# SPDX-License-Identifier: Apache-2.0
"""Runs PyTorch's own distributed tests, which its wheel brings: `python torch_suite.py [NAME …]`.

Each runs on railweave in three processes over loopback. Names are those of the methods, and may have * in
them. Exit status 1 if one has failed. Needs `expecttest`.
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


class Backend(str):
    """The name of railweave's back end, which passes for Gloo's: tests that Gloo can run are run."""

    __slots__ = ()

    def __eq__(self, other: object) -> bool:
        return str.__eq__(self, other) or other == "gloo"

    def __ne__(self, other: object) -> bool:
        return not self == other

    def __hash__(self) -> int:
        return hash("gloo")


def suite(patterns: list[str]) -> unittest.TestSuite:
    """Return the tests whose names match."""
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
            self._start_processes(multiprocessing.get_context("fork").Process)

    names = unittest.TestLoader().getTestCaseNames(OnRailweave)
    chosen = [name for name in names if any(fnmatch.fnmatch(name, pattern) for pattern in patterns)]
    return unittest.TestSuite(OnRailweave(name) for name in chosen)


def main() -> int:
    """Run them, and say what has become of them."""
    with tempfile.TemporaryDirectory() as folder:
        Path(folder, "barrier").mkdir()
        os.environ |= {"BACKEND": "gloo", "WORLD_SIZE": RANKS, "TEMP_DIR": folder}
        result: Any = unittest.TextTestRunner(verbosity=2).run(suite(sys.argv[1:] or ["test_*"]))
    failed = [test.id().rpartition(".")[2] for test, _ in [*result.failures, *result.errors]]
    for reason, count in Counter(reason for _, reason in result.skipped).most_common():
        print(f"skipped {count}: {reason}")
    passed = result.testsRun - len(result.skipped) - len(failed)
    print(f"{passed} passed, {len(result.skipped)} skipped, {len(failed)} failed", *failed)
    return bool(failed)


if __name__ == "__main__":
    sys.exit(main())
