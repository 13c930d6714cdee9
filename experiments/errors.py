# SPDX-License-Identifier: Apache-2.0
"""Errors of experiments."""

from __future__ import annotations

from railweave.errors import USAGE, UserError


class OptionError(UserError, ValueError):
    """An invalid option; the message names what was given and what was expected."""

    status = USAGE


class ResultError(UserError):
    """A result is wrong or incomplete, or a claim does not hold."""
