# SPDX-License-Identifier: Apache-2.0
"""`railweave run --live`: the page of a real run, and its buttons."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from http.client import HTTPConnection, HTTPResponse
from pathlib import Path
from typing import Any

from system.command import Start
from system.test_run import RUN, program

# It runs until the rail ina has failed and come back and the rail tcp has failed.
PROGRAM = """
import numpy as np
import railweave
with railweave.init() as comm:
    x = np.ones(1 << 16, np.float32)
    while True:
        assert (comm.all_reduce(x) == 2).all()
        ina, tcp = comm.stats().rails
        seen = np.array([ina.failures > 0 and ina.state == "up" and tcp.failures > 0], np.int32)
        if comm.all_reduce(seen, op="min")[0]:
            break
"""


def states(stream: HTTPResponse) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield the stream's events with their data. The test's own timeout is the deadline."""
    name = ""
    for line in stream:
        key, _, value = line.decode().rstrip("\n").partition(": ")
        if key == "event":
            name = value
        elif key == "data":
            yield name, json.loads(value)


def test_a_link_is_cut_and_mended_from_the_page_and_the_rail_dies_and_returns(
    start: Start, tmp_path: Path
) -> None:
    file = tmp_path / "r.json"
    command = start(*RUN, "--live", "--json", str(file), *program(tmp_path, PROGRAM))
    assert command.process.stderr is not None
    where = next(match for line in command.process.stderr if (match := re.search(r"http://(\S+)/", line)))[1]
    connection = HTTPConnection(where)

    def get(path: str) -> HTTPResponse:
        connection = HTTPConnection(where)
        connection.request("GET", path)
        return connection.getresponse()

    page = get("/").read().decode()
    token = re.search(r'name="token" content="([^"]+)"', page)
    assert token is not None

    def press(number: int, order: str) -> tuple[int, str]:
        headers = {"Origin": f"http://{where}", "X-Token": token[1]}
        connection.request("POST", f"/links/{number}/{order}", headers=headers)
        answer = connection.getresponse()
        return answer.status, answer.read().decode()

    stream = states(get("/events"))
    name, hello = next(stream)
    assert name == "hello"
    links = [(link["lower"], link["upper"]) for link in hello["links"]]
    found: list[str] = []  # texts of events

    def until(holds: Any) -> dict[str, Any]:
        for name, state in stream:
            assert name == "state"
            found.extend(event["text"] for event in state["events"])
            if holds(state):
                return state
        raise AssertionError(f"the stream has ended: {found}")

    until(lambda state: state["ranks"] == 2 and all(rail["bps"] for rail in state["rails"].values()))
    until(lambda state: any(tree["in_flight"] for tree in state["trees"]))
    ina, tcp = links.index(("h1", "s-ina")), links.index(("h2", "s-tcp"))
    assert press(ina, "cut") == (200, "cut h1 - s-ina\n")
    assert press(ina, "cut") == (200, "h1 - s-ina is so already\n")
    assert press(len(links), "cut")[0] == 404
    state = until(lambda state: state["rails"]["ina"]["state"] == "down")
    assert state["cut"] == [ina]
    assert press(ina, "mend") == (200, "mend h1 - s-ina\n")
    state = until(lambda state: state["rails"]["ina"]["state"] == "up")
    assert state["cut"] == []
    assert press(tcp, "cut")[0] == 200  # and not mended
    complaint = command.end()[1]
    assert command.process.returncode == 0, complaint
    words = ("link cut h1 s-ina", "repair link cut h1 s-ina", "link cut h2 s-tcp", "repair link cut h2 s-tcp")
    assert [line.split(": ", 1)[1] for line in complaint.splitlines() if "button: " in line] == list(words)
    assert any(text.startswith("rail ina excluded: ") for text in found)
    assert "rail ina readmitted" in found
    assert set(words[:2]) <= set(found)
    assert [name for name, _ in stream][-1] == "end"
    result = json.loads(file.read_text())
    assert result["ok"]
    assert all(row["failures"] for row in result["rows"])
    assert not list((tmp_path / "out" / "1").glob("rank-*.now"))
