# SPDX-License-Identifier: Apache-2.0
"""How long the interpreter may keep a thread or the event loop waiting."""

from __future__ import annotations

import contextlib
import gc
import sys
from collections.abc import Iterator, Mapping

_SWITCH_INTERVAL_S = 0.0002  # a thread that computes keeps the GIL so long; an RPC takes it about ten times
_MAX_SURVIVORS = 20_000  # objects that the garbage collector looks at again and again: 5 ms of work


def keep_short() -> None:
    """Set the whole process up for short pauses, once, when everything has been imported."""
    sys.setswitchinterval(_SWITCH_INTERVAL_S)
    gc.collect()
    gc.freeze()
    gc.callbacks.append(_freeze_survivors)


def _freeze_survivors(phase: str, info: Mapping[str, int]) -> None:
    """Exempt long-lived objects from further collections.

    Most long-lived objects are table entries. They are in no cycles, so one collection is enough.
    """
    if phase == "stop" and info["generation"] == 2 and len(gc.get_objects(2)) > _MAX_SURVIVORS:
        gc.freeze()


@contextlib.contextmanager
def collected_after() -> Iterator[None]:
    """Collect only at the end what is made here, because much of it becomes garbage then."""
    gc.disable()
    try:
        yield
    finally:
        gc.enable()
        gc.collect(0)
