# SPDX-License-Identifier: Apache-2.0
"""Errors of the controller; each message names what was given, the limit, and what to do."""

from __future__ import annotations

from railweave.errors import USAGE, UserError


class ControllerError(UserError):
    """Base of the errors that end the controller itself: bad options, files, ports, switches."""

    status = USAGE


class Refused(UserError):
    """A rail cannot be given in-network aggregation; the text is the reason, with the limit's name."""


class SwitchUnavailable(Refused):
    """The switch cannot be reached, or does not carry out a request."""


class RequestError(UserError):
    """A caller's request that cannot be granted."""

    status = USAGE


class InvalidRequest(RequestError):
    """The request is invalid, or contradicts those of other ranks."""


class AlreadyJoined(RequestError):
    """This rank of this job has joined already."""


class Denied(RequestError):
    """This controller was not started for such requests."""


class Overdue(RequestError):
    """Not all ranks joined within the deadline."""


class UnknownLease(RequestError):
    """No group runs under this lease."""


class Exhausted(RequestError):
    """The controller's own limits are reached."""
