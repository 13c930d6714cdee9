# SPDX-License-Identifier: Apache-2.0
"""What can be wrong with an experiment."""

from __future__ import annotations


class OptionError(ValueError):
    """An option that makes no sense; the message says what was given and what was expected."""
