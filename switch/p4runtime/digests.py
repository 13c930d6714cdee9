# SPDX-License-Identifier: Apache-2.0
"""Digests (specification, section 9.8): lists of distinct messages, bounded in size and delay, acknowledged.

No clock and no I/O: digests and the time go in; lists and a deadline come out.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from itertools import count, islice

from finsy.proto import p4r

from railweave.switch.p4runtime.errors import not_found, require, require_fits
from railweave.switch.p4runtime.p4data import Types
from railweave.switch.p4runtime.schema import Kind, Schema
from railweave.switch.p4runtime.strings import Strings
from railweave.switch.pipeline import Digest

MAX_LIST = 1024  # messages in a list, also where the controller sets no limit
MAX_UNACKNOWLEDGED = 65_536  # messages of one digest that are remembered, so as not to be sent again

_Values = tuple[int, ...]


@dataclass
class _Learner:
    """One digest that a controller has enabled."""

    config: p4r.DigestEntry.Config
    waiting: dict[_Values, None] = field(default_factory=dict)  # in order, each once
    since_ns: int = 0  # when the first of these came
    sent: dict[int, tuple[int, list[_Values]]] = field(default_factory=dict)  # by list id, oldest first
    remembered: set[_Values] = field(default_factory=set)  # all messages in `sent`

    @property
    def limit(self) -> int:
        """Return how many messages make a list full."""
        return min(self.config.max_list_size or MAX_LIST, MAX_LIST)

    @property
    def deadline_ns(self) -> int:
        """Return when a list with the messages that wait is due."""
        full = len(self.waiting) >= self.limit
        return self.since_ns + (0 if full else self.config.max_timeout_ns)

    def add(self, values: _Values, now_ns: int) -> None:
        """Let a message wait, unless it waits already or was sent and is not acknowledged."""
        self._forget_old(now_ns)
        if values not in self.remembered and values not in self.waiting:
            self.since_ns = self.since_ns if self.waiting else now_ns
            self.waiting[values] = None

    def forget(self, list_id: int) -> None:
        """Allow the messages of a list to be sent again. The list may be unknown, or forgotten already."""
        _, values = self.sent.pop(list_id, (0, []))
        self.remembered.difference_update(values)

    def forget_sent(self) -> None:
        """Allow all messages to be sent again."""
        self.sent.clear()
        self.remembered.clear()

    def _forget_old(self, now_ns: int) -> None:
        """Forget lists that were not acknowledged within the time that the controller has set."""
        while self.sent:
            list_id, (sent_ns, _) = next(iter(self.sent.items()))
            if now_ns - sent_ns < self.config.ack_timeout_ns and len(self.remembered) <= MAX_UNACKNOWLEDGED:
                return
            self.forget(list_id)

    def take_list(self, list_id: int, now_ns: int) -> list[_Values]:
        """Return the first messages that wait, and remember them until they are acknowledged."""
        values = list(islice(self.waiting, self.limit))
        for one in values:
            del self.waiting[one]
        if self.config.ack_timeout_ns > 0:
            self.sent[list_id] = (now_ns, values)
            self.remembered.update(values)
        return values


class Digests:
    """All digests of a pipeline. Packets' digests that no controller has enabled are dropped."""

    def __init__(self, schema: Schema, strings: Mapping[str, Strings]) -> None:
        """Begin with no digest enabled. `strings` are those of types that are translated to strings."""
        self._schema = schema
        self._types = Types(schema.p4info, strings)
        self._ids = {digest.preamble.name: number for number, digest in schema.digests.items()}
        self._learners: dict[int, _Learner] = {}
        self._list_ids = count(1)

    def snapshot(self) -> Digests:
        """Return the digests as they are enabled now, to be read only."""
        view = copy.copy(self)
        view._learners = {number: replace(learner) for number, learner in self._learners.items()}
        return view

    def write(self, kind: Kind, message: p4r.DigestEntry) -> None:
        """INSERT enables a digest, MODIFY changes its configuration, DELETE disables it."""
        name = self._schema.digests[message.digest_id].preamble.name
        require_fits(kind, f"configuration of digest {name}", exists=message.digest_id in self._learners)
        if kind == p4r.Update.DELETE:
            del self._learners[message.digest_id]
            return
        config = copy.deepcopy(message.config)
        require(
            min(config.max_timeout_ns, config.max_list_size, config.ack_timeout_ns) >= 0,
            f"time-outs and list size of digest {name} are 0 or more",
        )
        learner = self._learners.setdefault(message.digest_id, _Learner(config))
        learner.config = config
        if config.ack_timeout_ns == 0:
            learner.forget_sent()

    def read(self, pattern: p4r.DigestEntry) -> Iterator[p4r.Entity]:
        """Yield the configuration of one digest, or of all that are enabled (id 0)."""
        if pattern.digest_id:
            name = self._schema.digests[pattern.digest_id].preamble.name
            require(pattern.digest_id in self._learners, f"digest {name} is not enabled", not_found)
        for number, learner in list(self._learners.items()):
            if pattern.digest_id in (0, number):
                yield p4r.Entity(digest_entry=p4r.DigestEntry(digest_id=number, config=learner.config))

    def take(self, digest: Digest, now_ns: int) -> None:
        """Take a digest of a packet. A list may be `due` now."""
        learner = self._learners.get(self._ids.get(digest.name, 0))
        if learner is not None:
            learner.add(digest.values, now_ns)

    def due(self, now_ns: int) -> Iterator[p4r.DigestList]:
        """Yield the lists that are full, or whose first message has waited as long as it may."""
        for number, learner in self._learners.items():
            spec = self._schema.digests[number].type_spec
            while learner.waiting and learner.deadline_ns <= now_ns:
                list_id = next(self._list_ids)
                messages = learner.take_list(list_id, now_ns)
                data = [self._types.encode(spec, iter(values)) for values in messages]
                yield p4r.DigestList(digest_id=number, list_id=list_id, data=data)

    def deadline_ns(self) -> int | None:
        """Return when `due` will have a list; None if no message waits."""
        waiting = (learner.deadline_ns for learner in self._learners.values() if learner.waiting)
        return min(waiting, default=None)

    def acknowledge(self, message: p4r.DigestListAck) -> None:
        """Forget a list: its messages may be sent again. An unknown list is no error, it may have expired."""
        require(
            message.digest_id in self._schema.digests, f"no digest has id {message.digest_id} in the P4Info"
        )
        learner = self._learners.get(message.digest_id)
        if learner is not None:
            learner.forget(message.list_id)

    def forget_sent(self) -> None:
        """Allow all messages to be sent again, because the controllers have changed."""
        for learner in self._learners.values():
            learner.forget_sent()
