# SPDX-License-Identifier: Apache-2.0
"""The live page of one run: reads the lab's counters four times a second, and cuts and mends links.

Reading is cheap, because the page only reads files. The kernel has a file of counters for each namespace.
The ranks write files, and so does a program beside the controller.
"""

from __future__ import annotations

import asyncio
import json
import re
import time
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from railweave.errors import parts
from railweave.experiments.hosts import module_command
from railweave.experiments.live.feed import Feed
from railweave.experiments.live.server import RequestRefused, Server
from railweave.experiments.live.state import LiveState, Sample, links_of
from railweave.experiments.supervisor import cancel
from railweave.hosts.report_file import latest_of
from railweave.topologies.errors import LabError
from railweave.topologies.lab.faults import link_cut
from railweave.topologies.lab.injection import Injection
from railweave.topologies.lab.lab import Lab
from railweave.topologies.lab.namespaces import CONTROLLER_NODE
from railweave.topologies.lab.processes import Child
from railweave.topologies.model import Topology

EVERY_S = 0.25
POLLER = "railweave.experiments.live.controller"
STATIC = Path(__file__).parent / "static"
FILES = {
    "/": ("index.html", "text/html; charset=utf-8"),
    "/live.js": ("live.js", "text/javascript; charset=utf-8"),
    "/live.css": ("live.css", "text/css; charset=utf-8"),
}
_ORDER = re.compile(r"/links/(\d{1,5})/(cut|mend)")


class Page:
    """A page that shows a lab; it does nothing unless it is `wanted`. Made by `live_page`."""

    def __init__(self, topology: Topology, title: str, *, wanted: bool = True) -> None:
        """Show this topology."""
        self._wanted = wanted
        self._links = links_of(topology)
        self._state = LiveState(topology, self._links, title)
        self._feed = Feed(self._state.greeting)
        self._lab: Lab | None = None
        self._cuts: dict[tuple[str, str], Injection] = {}
        self._on_event: Callable[[str], None] = lambda _: None

    @property
    def environment(self) -> dict[str, str]:
        """The environment variables that make ranks write their reports for the page."""
        return {"RAILWEAVE_REPORT_EVERY_S": f"{EVERY_S:g}"} if self._wanted else {}

    def server(self, port: int) -> Server:
        """Return the server of this page."""
        files = {path: (media, (STATIC / name).read_bytes()) for path, (name, media) in FILES.items()}
        return Server(port, files, self._feed, self._order)

    @asynccontextmanager
    async def watch(
        self, lab: Lab, reports: Mapping[int, Path], folder: Path, on_event: Callable[[str], None]
    ) -> AsyncIterator[None]:
        """Show a lab. `on_event` gets the effect of each button. The page mends its cuts at the end."""
        if not self._wanted:
            yield
            return
        answers = folder / "controller.now"
        for path in (answers, *map(latest_of, reports.values())):
            path.unlink(missing_ok=True)
        self._lab, self._on_event = lab, on_event
        poller = await _start_poller(lab, folder, answers)
        sampling = asyncio.create_task(self._sample(lab, reports, answers))
        try:
            yield
        finally:
            self._lab = None
            await cancel(sampling)
            if poller is not None:
                await poller.stop()
            for pair in list(self._cuts):
                await self._mend(pair)
        if not sampling.cancelled():
            sampling.result()  # raises its exception, if it has one

    def happened(self, text: str) -> None:
        """Show a fault or a repair that has been carried out."""
        self._state.happened(time.monotonic(), "repair" if text.startswith("repair") else "fault", text)

    async def _sample(self, lab: Lab, reports: Mapping[int, Path], answers: Path) -> None:
        files = {rank: latest_of(path) for rank, path in reports.items()}
        nodes = {link.lower: lab.pid(link.lower) for link in self._links}
        try:
            while True:
                ranks = {rank: report for rank, path in files.items() if (report := _json(path))}
                cut = [n for n, link in enumerate(self._links) if (link.lower, link.upper) in self._cuts]
                traffic = {name: count for pid in nodes.values() for name, count in _traffic(pid)}
                sample = Sample(time.monotonic(), traffic, ranks, _json(answers), cut)
                self._feed.publish(self._state.take(sample))
                await asyncio.sleep(EVERY_S)
        finally:
            self._feed.end()

    async def _order(self, path: str) -> str | None:
        """Carry out the order of a button, such as /links/3/cut."""
        match = _ORDER.fullmatch(path)
        if match is None or int(match[1]) >= len(self._links):
            return None
        if self._lab is None:
            raise RequestRefused(
                409, "the network is not running", "a running network", "wait, or start another run"
            )
        link = self._links[int(match[1])]
        pair = (link.lower, link.upper)
        if (match[2] == "cut") == (pair in self._cuts):
            return f"{link.lower} - {link.upper} is so already"
        try:
            await (self._cut(self._lab, pair) if match[2] == "cut" else self._mend(pair))
        except LabError as error:
            raise RequestRefused(409, *parts(str(error))) from error
        return f"{match[2]} {link.lower} - {link.upper}"

    async def _cut(self, lab: Lab, pair: tuple[str, str]) -> None:
        injection = self._cuts[pair] = Injection(lab, link_cut(lab.topology, *pair))
        await injection.__aenter__()
        await injection.inject()
        self._on_event(f"link cut {' '.join(pair)}")

    async def _mend(self, pair: tuple[str, str]) -> None:
        await self._cuts.pop(pair).__aexit__(None, None, None)
        self._on_event(f"repair link cut {' '.join(pair)}")


async def _start_poller(lab: Lab, folder: Path, answers: Path) -> Child | None:
    """Start the program that asks the controller, if there are P4 switches."""
    if not any(switch.p4runtime for plane in lab.topology.planes for switch in plane.switches):
        return None
    command = lab.run_in(CONTROLLER_NODE, module_command(POLLER, lab.controller, str(answers)))
    return await Child.start("live page's poller", command, folder / "live.log", asyncio.Queue())


def _json(path: Path) -> Any:
    """Return the JSON value of a file that is always replaced as a whole; {} if the file does not exist."""
    try:
        return json.loads(path.read_text())
    except FileNotFoundError:
        return {}


def _traffic(pid: int) -> list[tuple[str, tuple[int, int]]]:
    """Return the interfaces of a process's namespace, with the bytes that they have received and sent."""
    try:
        lines = Path(f"/proc/{pid}/net/dev").read_text().splitlines()[2:]
    except OSError:  # the lab is being taken down
        return []
    counts = [(name.strip(), values.split()) for name, _, values in (line.partition(":") for line in lines)]
    return [(name, (int(values[0]), int(values[8]))) for name, values in counts]


@asynccontextmanager
async def live_page(
    port: int | None, topology: Topology, title: str, say: Callable[[str], None]
) -> AsyncIterator[Page]:
    """Serve a page on a port of this machine, and report its address through `say`.

    Port 0 is any free port. None means no page. Raises OptionError if the port cannot be used.
    """
    page = Page(topology, title, wanted=port is not None)
    if port is None:
        yield page
        return
    async with page.server(port) as server:
        say(f"live page: {server.url}")
        yield page
