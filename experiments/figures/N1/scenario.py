# SPDX-License-Identifier: Apache-2.0
"""Two equal TCP rails against one TCP rail."""

from __future__ import annotations

from railweave.experiments.figures import networks
from railweave.experiments.scenario import Scenario


def plan(quick: bool) -> list[Scenario]:
    """Return the sweep over sizes."""
    return [networks.rails(("tcp", "tcp"), quick)]
