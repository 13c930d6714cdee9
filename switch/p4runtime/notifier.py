# SPDX-License-Identifier: Apache-2.0
"""Messages of the data plane for controllers: packets, digests and idle entries."""

from __future__ import annotations

import asyncio
import contextlib
import os
import time
from functools import partial

from finsy.proto import p4r

from railweave.switch.p4runtime.device import Device
from railweave.switch.p4runtime.roles import Scope
from railweave.switch.p4runtime.stream import Stream, Streams

_TICK_S = 0.05  # how late a notification of an idle entry, or of digests after a new config, may be
_MAX_IDLE = 64  # entries that are looked at before other work
_NS = 1_000_000_000


class Notifier:
    """Carries notices of the pipeline that packets go through to the streams of primaries."""

    def __init__(self, streams: Streams) -> None:
        """Begin without a device to watch."""
        self._streams = streams
        self._device: Device | None = None
        self._fd: int | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._primaries: list[Stream] = []  # when digests came last

    def watch(self, device: Device | None) -> None:
        """Follow this device, and no longer the one before; None ends it."""
        loop = asyncio.get_running_loop()
        if self._fd is not None:
            loop.remove_reader(self._fd)
            self._fd = None
        self._stop_timer()
        self._device = device
        if device is not None:
            self._fd = device.pipeline.notices_fd
            loop.add_reader(self._fd, self._collect)
        self._set_timer()

    def _collect(self) -> None:
        """Take packets and digests. The eventfd is cleared first, so that no item can be missed."""
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
        primaries = [stream for stream, _ in self._streams.primaries()]
        if primaries != self._primaries:
            self._primaries = primaries
            device.digests.forget_sent()
        now_ns = time.monotonic_ns()
        for digest in device.pipeline.digests():
            device.digests.take(digest, now_ns)
            self._send_digests(device, now_ns)
        self._set_timer()

    def _tick(self) -> None:
        """Send notifications that are due by now."""
        self._timer = None
        if self._device is not None:
            self._send_digests(self._device, time.monotonic_ns())
            more = self._send_idle(self._device)
            self._set_timer(0 if more else _TICK_S)

    def _set_timer(self, delay_s: float = _TICK_S) -> None:
        """Wake up when a list of digests is due, and at each tick while time may make something due."""
        if self._device is None:
            return
        loop = asyncio.get_running_loop()  # its clock is the monotonic one
        at, deadline_ns = loop.time() + delay_s, self._device.digests.deadline_ns()
        if deadline_ns is not None:
            at = min(at, deadline_ns / _NS)
        elif not any(table.idle_timeouts for table in self._device.pipeline.program.tables.values()):
            return
        if self._timer is None or at < self._timer.when():
            self._stop_timer()
            self._timer = loop.call_at(at, self._tick)

    def _stop_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _send_digests(self, device: Device, now_ns: int) -> None:
        for digests in device.digests.due(now_ns):
            number = digests.digest_id
            digests.timestamp = time.time_ns()
            response = p4r.StreamMessageResponse(digest=digests)
            self._streams.tell_primaries(response, partial(Scope.covers, p4_id=number))

    def _send_idle(self, device: Device) -> bool:
        """Tell each role of its idle entries in one message; True if more are due."""
        primaries = self._streams.primaries()
        if not primaries:
            return False  # the next primary gets the message
        entries, more = device.expired(_MAX_IDLE)
        for stream, scope in primaries:
            heard = [entry for entry in entries if scope.covers(entry.table_id)]
            if heard:
                notification = p4r.IdleTimeoutNotification(table_entry=heard, timestamp=time.time_ns())
                stream.send(p4r.StreamMessageResponse(idle_timeout_notification=notification))
        return more
