# SPDX-License-Identifier: Apache-2.0
"""Errors of experiments."""

from __future__ import annotations

from railweave.errors import UserError


class OptionError(UserError, ValueError):
    """An invalid option; the message names what was given and what was expected."""


class Missing(OptionError):
    """This machine lacks a program that a measurement needs."""
