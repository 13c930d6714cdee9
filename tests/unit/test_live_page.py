# SPDX-License-Identifier: Apache-2.0
"""The live page in a browser: it shows the state from the server, and its buttons send orders."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from chromium import PROGRAM, Browser
from unit.test_live_state import controller, rail, tree

from railweave.experiments.live.feed import Feed
from railweave.experiments.live.page import FILES, STATIC
from railweave.experiments.live.server import Server
from railweave.experiments.live.state import LiveState, Sample, links_of
from railweave.topologies.clos import leaf_spine

TOPOLOGY = leaf_spine(racks=2, hosts=2, spines=2, rails=["ina", "tcp"], rates=[10**8])
LINKS = links_of(TOPOLOGY)
HOSTILE = "<img src=x onerror=fail()><script>fail()</script>"

pytestmark = pytest.mark.skipif(PROGRAM is None, reason="no Chromium: apt-get install chromium")


def sample(at: float, rail_state: str = "up", cut: tuple[int, ...] = ()) -> Sample:
    """Return the sample after `at` seconds. Every link carries 50 Mbit/s up and 25 Mbit/s down."""
    count = int(at * 1e6 / 8)
    failed = {"failures": int(rail_state != "up"), "reason": HOSTILE * (rail_state != "up")}
    ina = rail("ina", 3 * count, state=rail_state, groups=[{"group": 7, "in_flight": 40}], **failed)
    reports = {rank: {"rails": [ina, rail("tcp", count)]} for rank in range(4)}
    there = controller(tree(root="spine1", switches=["leaf1", "leaf2", "spine1"]), switch="spine1")
    return Sample(at, {link.interface: (25 * count, 50 * count) for link in LINKS}, reports, there, cut)


def text(browser: Browser, selector: str) -> str:
    found = browser.value(f"document.querySelector({json.dumps(selector)}).textContent")
    assert isinstance(found, str)
    return found


async def test_the_page_shows_the_lab_and_its_buttons_cut_and_mend(tmp_path: Path) -> None:
    state = LiveState(TOPOLOGY, LINKS, HOSTILE)
    feed = Feed(state.greeting)
    orders: asyncio.Queue[str] = asyncio.Queue()

    async def order(path: str) -> str:
        orders.put_nowait(path)
        return "done"

    async def at(work: Callable[..., Any], *arguments: Any) -> Any:
        return await asyncio.to_thread(work, *arguments)

    files = {path: (media, (STATIC / name).read_bytes()) for path, (name, media) in FILES.items()}
    async with Server(0, files, feed, order) as server:
        with Browser(tmp_path) as browser:
            for number in range(9):
                feed.publish(state.take(sample(number / 4)))
            await at(browser.open, server.url)
            last = "/4 of 4 ranks report · 2 s/.test(document.getElementById('status').textContent)"
            await at(browser.until, last)
            assert await at(text, browser, "#title") == HOSTILE
            card = await at(text, browser, ".rail.ina")
            assert ("● up" in card, "50 Mbit/s" in card, "75 %" in card) == (True, True, True)
            assert "spine1: 40 in flight, 512 of 8192 allocated" in await at(text, browser, "#slots")
            assert await at(text, browser, "#links tr:nth-child(2) td") == "Cut ↑50 ↓25"
            halos = "[...document.querySelectorAll('.halo')].filter((line) => !line.style.display).length"
            assert await at(browser.value, halos) == 4 + 2  # hosts, and leaves to one of the two spines

            await at(browser.value, "document.querySelector('[data-link=\"0\"]').click()")
            assert await orders.get() == "/links/0/cut"
            state.happened(2.2, "fault", f"link cut {HOSTILE}")
            feed.publish(state.take(sample(2.25, "down", cut=(0,))))
            await at(browser.until, "document.querySelector('[data-link=\"0\"]').textContent === 'Mend'")
            assert "✕ down" in await at(text, browser, ".rail.ina")
            events = await at(text, browser, "#events")
            assert f"rail ina excluded: {HOSTILE}" in events
            assert f"link cut {HOSTILE}" in events
            await at(browser.value, "document.querySelectorAll('.hit')[0].dispatchEvent(new Event('click'))")
            assert await orders.get() == "/links/0/mend"

            feed.publish(state.take(sample(2.5)))
            feed.end()
            await at(browser.until, "document.getElementById('status').textContent === 'the run has ended'")
            assert "rail ina readmitted" in await at(text, browser, "#events")
            made = "document.querySelectorAll('img, body script').length"
            assert await at(browser.value, made) == 0
            assert browser.complaints == []
