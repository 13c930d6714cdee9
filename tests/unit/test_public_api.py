# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import subprocess
import sys

import pytest

import railweave


def test_every_public_name_is_there() -> None:
    for name in railweave.__all__:
        assert getattr(railweave, name).__doc__
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        _ = railweave.nothing


def test_importing_railweave_is_cheap() -> None:
    code = "import sys, railweave; print(*sorted({'numpy', 'grpc', 'railweave._native'} & set(sys.modules)))"
    done = subprocess.run([sys.executable, "-P", "-c", code], check=True, capture_output=True, text=True)
    assert done.stdout.split() == []
