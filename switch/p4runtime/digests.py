# SPDX-License-Identifier: Apache-2.0
"""Digests (specification, section 9.8): lists of distinct messages, bounded in size and delay, acknowledged.

No clock and no I/O: digests and the time go in; lists and a deadline come out.
"""

from __future__ import annotations

import copy
from collections import OrderedDict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from finsy.proto import p4r

from railweave.switch.p4runtime import p4data
from railweave.switch.p4runtime.errors import already_exists, not_found, require
from railweave.switch.p4runtime.schema import Kind, Schema
from railweave.switch.p4runtime.strings import Strings
from railweave.switch.pipeline import Digest

MAX_LIST = 1024  # messages, where the controller sets no limit of its own
MAX_UNACKNOWLEDGED = 65_536  # messages of one digest that are remembered, so as not to be sent again

_Values = tuple[int, ...]


@dataclass
class _Learner:
    """One digest that a controller has enabled."""

    config: p4r.DigestEntry.Config
    waiting: dict[_Values, None] = field(default_factory=dict)  # in order, each once
    since_ns: int = 0  # when the first of these came
    sent: OrderedDict[int, tuple[int, frozenset[_Values]]] = field(default_factory=OrderedDict)  # by list id
    remembered: dict[_Values, int] = field(default_factory=dict)  # all that stands in `sent`, with its list
    next_list: int = 1

    @property
    def limit(self) -> int:
        """How many messages make a list full."""
        wanted = self.config.max_list_size
        return 1 if self.config.max_timeout_ns == 0 else min(wanted, MAX_LIST) if wanted else MAX_LIST

    def forget(self, list_id: int) -> bool:
        """Drop a list from what is not to be repeated; False if it is not known (any more)."""
        known = self.sent.pop(list_id, None)
        for values in known[1] if known else ():
            if self.remembered.get(values) == list_id:
                del self.remembered[values]
        return known is not None

    def forget_old(self, now_ns: int) -> None:
        """Drop lists that were never acknowledged, after the time that the controller has set."""
        while self.sent:
            list_id, (sent_ns, _) = next(iter(self.sent.items()))
            if now_ns - sent_ns < self.config.ack_timeout_ns and len(self.remembered) <= MAX_UNACKNOWLEDGED:
                return
            self.forget(list_id)

    def take_list(self, now_ns: int) -> tuple[int, list[_Values]]:
        """Turn what waits into a list, and remember it until it is acknowledged."""
        number, values = self.next_list, list(self.waiting)
        self.waiting.clear()
        self.next_list += 1
        if self.config.ack_timeout_ns > 0:
            self.sent[number] = (now_ns, frozenset(values))
            self.remembered.update(dict.fromkeys(values, number))
        return number, values


class Digests:
    """All digests of a pipeline; those that no controller has enabled are dropped."""

    def __init__(self, schema: Schema, strings: Mapping[str, Strings]) -> None:
        """None is enabled. `strings` are those of types that are translated to strings."""
        self._schema = schema
        self._strings = strings
        self._ids = {digest.preamble.name: number for number, digest in schema.digests.items()}
        self._learners: dict[int, _Learner] = {}

    def write(self, kind: Kind, message: p4r.DigestEntry) -> None:
        """INSERT enables a digest, MODIFY configures it anew, DELETE disables it."""
        name = self._schema.digests[message.digest_id].preamble.name
        known = self._learners.get(message.digest_id)
        config = copy.deepcopy(message.config)
        require(
            kind == p4r.Update.DELETE
            or min(config.max_timeout_ns, config.max_list_size, config.ack_timeout_ns) >= 0,
            f"time-outs and list size of digest {name} are 0 or more",
        )
        if kind == p4r.Update.INSERT:
            if known:
                raise already_exists(f"digest {name} is enabled already", "MODIFY it")
            self._learners[message.digest_id] = _Learner(config)
        elif known is None:
            raise not_found(f"digest {name} is not enabled", "INSERT it")
        elif kind == p4r.Update.MODIFY:
            known.config = config
        else:
            del self._learners[message.digest_id]

    def read(self, pattern: p4r.DigestEntry) -> Iterator[p4r.Entity]:
        """The configuration of one digest, or of all that are enabled (id 0)."""
        if pattern.digest_id:
            name = self._schema.digests[pattern.digest_id].preamble.name
            require(pattern.digest_id in self._learners, f"digest {name} is not enabled", not_found)
        for number, learner in self._learners.items():
            if pattern.digest_id in (0, number):
                yield p4r.Entity(digest_entry=p4r.DigestEntry(digest_id=number, config=learner.config))

    def take(self, digest: Digest, now_ns: int) -> p4r.DigestList | None:
        """Take what a packet has told; a list if one is full with it."""
        number = self._ids.get(digest.name, 0)
        learner = self._learners.get(number)
        if learner is None:
            return None
        learner.forget_old(now_ns)
        if digest.values in learner.remembered or digest.values in learner.waiting:
            return None
        if not learner.waiting:
            learner.since_ns = now_ns
        learner.waiting[digest.values] = None
        return self._list(number, learner, now_ns) if len(learner.waiting) >= learner.limit else None

    def due(self, now_ns: int) -> list[p4r.DigestList]:
        """Lists whose first message has waited as long as it may."""
        return [
            self._list(number, learner, now_ns)
            for number, learner in self._learners.items()
            if learner.waiting and now_ns - learner.since_ns >= learner.config.max_timeout_ns
        ]

    def deadline_ns(self) -> int | None:
        """When `due` will have something."""
        waiting = (learner for learner in self._learners.values() if learner.waiting)
        return min((learner.since_ns + learner.config.max_timeout_ns for learner in waiting), default=None)

    def acknowledge(self, message: p4r.DigestListAck) -> None:
        """Forget a list: its messages may be sent again. An unknown list is no error, it may have expired."""
        require(
            message.digest_id in self._schema.digests, f"no digest has id {message.digest_id} in the P4Info"
        )
        learner = self._learners.get(message.digest_id)
        if learner is not None:
            learner.forget(message.list_id)

    def _list(self, number: int, learner: _Learner, now_ns: int) -> p4r.DigestList:
        list_id, messages = learner.take_list(now_ns)
        spec = self._schema.digests[number].type_spec
        data = [p4data.encode(self._schema.p4info, spec, values, self._strings) for values in messages]
        return p4r.DigestList(digest_id=number, list_id=list_id, data=data)
