# SPDX-License-Identifier: Apache-2.0
"""The states of striping, and every transition between them. A pair that is not here is an error."""

from __future__ import annotations

import enum
from collections.abc import Mapping


class ClassState(enum.StrEnum):
    """What is known of a class of calls (rails, collective, numbers, size to the next power of two)."""

    COLD = "cold"  # rails are tried on real calls, one after the other; else the quickest as far as known
    WARM = "warm"  # all have been measured, and what follows from that is in force; measured often
    HOT = "hot"  # calls take what was predicted; measured now and then


class ClassEvent(enum.StrEnum):
    """What happens to a class."""

    PROBED = "probed"  # every rail that can carry such calls has a cost: measured, kept or loaded
    LOADED = "loaded"  # every rail's cost has been loaded: of an earlier job like this one
    SETTLED = "settled"  # what is in force has been measured, and takes what is predicted
    DRIFTED = "drifted"  # rails' speeds have changed so much that another way is clearly quicker


class RailState(enum.StrEnum):
    """A rail as the ranks have agreed."""

    UP = "up"
    DOWN = "down"
    RECOVERING = "recovering"  # back, with the costs of before: until it has been measured anew


class RailEvent(enum.StrEnum):
    """What happens to a rail."""

    DIED = "died"
    RETURNED = "returned"
    MEASURED = "measured"  # a time of it has been agreed


_C, _E = ClassState, ClassEvent
CLASS_TRANSITIONS: Mapping[tuple[ClassState, ClassEvent], ClassState] = {
    (_C.COLD, _E.PROBED): _C.WARM,
    (_C.COLD, _E.LOADED): _C.HOT,
    (_C.COLD, _E.SETTLED): _C.COLD,  # a rail has still to be tried
    (_C.COLD, _E.DRIFTED): _C.COLD,
    (_C.WARM, _E.PROBED): _C.WARM,
    (_C.WARM, _E.LOADED): _C.WARM,
    (_C.WARM, _E.SETTLED): _C.HOT,
    (_C.WARM, _E.DRIFTED): _C.WARM,
    (_C.HOT, _E.PROBED): _C.HOT,
    (_C.HOT, _E.LOADED): _C.HOT,
    (_C.HOT, _E.SETTLED): _C.HOT,
    (_C.HOT, _E.DRIFTED): _C.WARM,
}

_R, _H = RailState, RailEvent
RAIL_TRANSITIONS: Mapping[tuple[RailState, RailEvent], RailState] = {
    (_R.UP, _H.DIED): _R.DOWN,
    (_R.UP, _H.RETURNED): _R.UP,
    (_R.UP, _H.MEASURED): _R.UP,
    (_R.DOWN, _H.DIED): _R.DOWN,
    (_R.DOWN, _H.RETURNED): _R.RECOVERING,
    (_R.DOWN, _H.MEASURED): _R.DOWN,  # of a call before it died
    (_R.RECOVERING, _H.DIED): _R.DOWN,
    (_R.RECOVERING, _H.RETURNED): _R.RECOVERING,
    (_R.RECOVERING, _H.MEASURED): _R.UP,
}


def next_class(state: ClassState, event: ClassEvent) -> ClassState:
    """Return a class's state after an event."""
    return CLASS_TRANSITIONS[state, event]


def next_rail(state: RailState, event: RailEvent) -> RailState:
    """Return a rail's state after an event."""
    return RAIL_TRANSITIONS[state, event]
