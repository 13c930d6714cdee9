# SPDX-License-Identifier: Apache-2.0
"""Errors of experiments."""

from __future__ import annotations


class OptionError(ValueError):
    """An invalid option; the message names what was given and what was expected."""
