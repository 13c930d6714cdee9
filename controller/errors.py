# SPDX-License-Identifier: Apache-2.0
"""Errors of the controller. Each message names the given value, the limit, and the remedy."""

from __future__ import annotations

from railweave.errors import USAGE, UserError


class ControllerError(UserError):
    """The base class of errors that end the controller itself: bad options, files, ports, switches."""

    status = USAGE


class Refused(UserError):
    """A rail cannot get in-network aggregation. The text is the reason, with the limit's name."""


class SwitchUnavailable(Refused):
    """The switch cannot be reached, or does not carry out a request."""


class RequestError(UserError):
    """A caller's request that cannot be granted."""

    status = USAGE


class InvalidRequest(RequestError):
    """The request is invalid, or contradicts the requests of other ranks."""


class AlreadyJoined(RequestError):
    """This rank of this job has joined already."""


class Denied(RequestError):
    """This controller was started without the option for such requests."""


class Overdue(RequestError):
    """Not all ranks joined within the deadline."""


class UnknownLease(RequestError):
    """No group runs under this lease."""


class Exhausted(RequestError):
    """The controller's own limits are reached."""
