# SPDX-License-Identifier: Apache-2.0
"""A pytest fixture that makes labs: `pytest_plugins = ["railweave.pytest_plugin"]` in a conftest.py."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from railweave.experiments.program.testbed import Testbed


@pytest.fixture
def railweave_lab(tmp_path: Path) -> Iterator[Callable[..., Testbed]]:
    """Yield a function that makes labs, such as `lab = railweave_lab(hosts=2, rails="ina,tcp")`.

    The function takes the arguments of `railweave.lab` and returns a running lab. The fixture removes all
    labs at the end of the test. Their logs are in the test's temporary folder (`tmp_path`). The test is
    skipped if this machine cannot make network namespaces.
    """
    import railweave  # noqa: PLC0415 - tests without a lab do not pay for the import
    from railweave.topologies.errors import LabError  # noqa: PLC0415
    from railweave.topologies.lab.namespaces import require_tools  # noqa: PLC0415

    with ExitStack() as labs:

        def make(*arguments: Any, **options: Any) -> Testbed:
            try:
                require_tools()
            except LabError as error:
                pytest.skip(str(error))
            return labs.enter_context(railweave.lab(*arguments, **{"out": str(tmp_path / "lab"), **options}))

        yield make
