# SPDX-License-Identifier: Apache-2.0
"""Errors of algorithms."""

from __future__ import annotations

from typing import ClassVar

from railweave.errors import USAGE, UserError


class AlgorithmError(UserError):
    """An algorithm's folder has a mistake, or its program and its control do not fit together."""

    status: ClassVar[int] = USAGE
