# SPDX-License-Identifier: Apache-2.0
"""Random programs give the same results on the embedded engine and on the real BMv2.

`python -m differential` runs more programs.
"""

from __future__ import annotations

import dataclasses
import itertools
from pathlib import Path

import pytest
from differential import compare
from differential.generate import generate
from differential.shape import Features
from vectors import bmv2


def test_a_seed_is_a_program_and_its_packets() -> None:
    for seed in range(20):
        first, second = generate(seed), generate(seed)
        assert first.text == second.text
        assert first.setup == second.setup
        assert list(itertools.islice(first.packets(), 50)) == list(itertools.islice(second.packets(), 50))
    assert generate(1).text != generate(2).text


def test_every_feature_is_used() -> None:
    shapes = [generate(seed).shape.features for seed in range(60)]
    for feature in dataclasses.fields(Features):
        assert any(getattr(features, feature.name) for features in shapes), feature.name


@bmv2.ALONE
@pytest.mark.skipif(bmv2.missing() is not None, reason=f"BMv2: {bmv2.missing()}")
def test_random_programs_run_as_on_bmv2(tmp_path: Path) -> None:
    ran = 0
    for seed in range(1, 5):
        outcome = compare.run(generate(seed), 200, compare.folder(tmp_path, seed))
        assert outcome.difference is None, f"seed {seed}: {outcome.difference}"
        assert outcome.refused is None, f"seed {seed}: {outcome.refused}"
        ran += outcome.packets
    assert ran >= 400
