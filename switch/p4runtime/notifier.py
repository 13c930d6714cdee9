# SPDX-License-Identifier: Apache-2.0
"""What the data plane tells controllers: packets, digests, entries that nothing hits any more."""

from __future__ import annotations

import asyncio
import contextlib
import os
import time
from functools import partial

from finsy.proto import p4r

from railweave.switch.p4runtime.device import Device
from railweave.switch.p4runtime.roles import Scope
from railweave.switch.p4runtime.stream import Streams

_IDLE_SCAN_S = 0.05  # how late a notification of an idle entry may be
_NS = 1_000_000_000


class Notifier:
    """Carries notices of the pipeline that packets go through to the streams of primaries."""

    def __init__(self, streams: Streams) -> None:
        """Nothing is watched yet."""
        self._streams = streams
        self._device: Device | None = None
        self._fd: int | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._scan: asyncio.TimerHandle | None = None

    def watch(self, device: Device | None) -> None:
        """Follow this device, and no longer the one before; None ends it."""
        loop = asyncio.get_running_loop()
        if self._fd is not None:
            loop.remove_reader(self._fd)
        for timer in (self._timer, self._scan):
            if timer is not None:
                timer.cancel()
        self._timer = self._scan = self._fd = None
        self._device = device
        if device is None:
            return
        self._fd = device.pipeline.notices_fd
        loop.add_reader(self._fd, self._collect)
        if any(table.idle_timeouts for table in device.pipeline.program.tables.values()):
            self._scan = loop.call_later(_IDLE_SCAN_S, self._scan_idle)

    def _collect(self) -> None:
        """Take what packets have left: the eventfd is cleared first, so that nothing can be missed."""
        device = self._device
        if device is None or self._fd is None:
            return
        with contextlib.suppress(BlockingIOError):
            os.eventfd_read(self._fd)
        for packet in device.pipeline.packets_in():
            message = device.packet_in.decode(packet)
            if message is not None:
                device.translation.packet_in(message)
                response = p4r.StreamMessageResponse(packet=message)
                self._streams.tell_primaries(response, partial(Scope.hears, packet=message))
        now_ns = time.monotonic_ns()
        for digest in device.pipeline.digests():
            self._send(device.digests.take(digest, now_ns))
        self._set_timer()

    def _send(self, digests: p4r.DigestList | None) -> None:
        if digests is None:
            return
        digests.timestamp = time.time_ns()
        number = digests.digest_id
        response = p4r.StreamMessageResponse(digest=digests)
        self._streams.tell_primaries(response, lambda scope: scope.covers(number))

    def _set_timer(self) -> None:
        """Wake up when the next list is due."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        deadline = self._device.digests.deadline_ns() if self._device else None
        if deadline is not None:
            delay = max(0.0, (deadline - time.monotonic_ns()) / _NS)
            self._timer = asyncio.get_running_loop().call_later(delay, self._send_due)

    def _send_due(self) -> None:
        self._timer = None
        if self._device is not None:
            for digests in self._device.digests.due(time.monotonic_ns()):
                self._send(digests)
            self._set_timer()

    def _scan_idle(self) -> None:
        """Tell of idle entries, all of a scan in one message for each role."""
        device = self._device
        if device is None:
            return
        self._scan = asyncio.get_running_loop().call_later(_IDLE_SCAN_S, self._scan_idle)
        entries = device.expired()
        for stream, scope in self._streams.primaries() if entries else ():
            heard = [entry for entry in entries if scope.covers(entry.table_id)]
            if heard:
                notification = p4r.IdleTimeoutNotification(table_entry=heard, timestamp=time.time_ns())
                stream.send(p4r.StreamMessageResponse(idle_timeout_notification=notification))
