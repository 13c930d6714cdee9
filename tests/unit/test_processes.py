# SPDX-License-Identifier: Apache-2.0
"""Child processes of the lab: their ready lines, their ends, and the messages about them."""

from __future__ import annotations

import asyncio
import os
import sys
from pathlib import Path

import pytest

from railweave.topologies.errors import LabError
from railweave.topologies.lab.processes import Child, Event, Exit, Line, last_line


def python(script: str) -> list[str]:
    return [sys.executable, "-u", "-c", script]


async def start(script: str, folder: Path) -> tuple[Child, asyncio.Queue[Event]]:
    events: asyncio.Queue[Event] = asyncio.Queue()
    return await Child.start("child", python(script), folder / "child.log", events), events


async def test_lines_of_any_length_and_the_end_come_in_order(tmp_path: Path) -> None:
    script = "print('ready port=1'); print('x' * (3 << 20)); print('ä'); print('end', end='')"
    child, events = await start(script, tmp_path)
    assert await child.ready(20) == "ready port=1"
    lines = ["ready port=1", "x" * (3 << 20), "ä", "end"]
    found = [await asyncio.wait_for(events.get(), 60) for _ in range(5)]
    assert found == [*(Line(child, line) for line in lines), Exit(child, 0)]
    assert not child.running
    assert child.log.read_text() == "\n".join(lines)


async def test_a_child_whose_output_cannot_be_kept_is_ended_and_says_so(tmp_path: Path) -> None:
    (tmp_path / "child.log").symlink_to("/dev/full")
    child, events = await start("print('one'); import signal; signal.pause()", tmp_path)
    end = await asyncio.wait_for(events.get(), 60)
    assert isinstance(end, Exit)
    assert "its output cannot be kept: [Errno 28]" in child.failure_notice(end.code)
    with pytest.raises(LabError, match="its output cannot be kept"):
        await child.ready(20)
    await child.stop()


async def test_an_end_before_ready_says_why(tmp_path: Path) -> None:
    child, _ = await start("raise SystemExit('address in use')", tmp_path)
    with pytest.raises(LabError, match=r"child ended with status 1: address in use \(log: .*child\.log\)"):
        await child.ready(20)


async def test_a_switch_is_waited_for_while_it_compiles(tmp_path: Path) -> None:
    go_on = tmp_path / "go-on"
    os.mkfifo(go_on)
    begin, end = "print('program p: interpreted, being compiled')", "print('program p: compiled')"
    script = f"{begin}; open({str(go_on)!r}).read(); {end}"
    child, events = await start(script, tmp_path)
    await asyncio.wait_for(events.get(), 20)
    waiting = asyncio.create_task(child.compiled())
    assert not (await asyncio.wait([waiting], timeout=0))[0]
    await asyncio.to_thread(go_on.write_text, "")
    await asyncio.wait_for(waiting, 20)
    await child.stop()


def test_the_last_error_of_a_log_is_found(tmp_path: Path) -> None:
    log = tmp_path / "log"
    assert last_line(log) == ""
    log.write_text(
        'Traceback:\n  File "x"\nhosts.errors.PeerLost: rank 1\nsome farewell\n{"event": "step"}\n'
    )
    assert last_line(log) == "hosts.errors.PeerLost: rank 1"
    log.write_text("first\nlast\n\n")
    assert last_line(log) == "last"


async def test_a_deadline_passes(tmp_path: Path) -> None:
    child, _ = await start("import signal; signal.pause()", tmp_path)
    with pytest.raises(LabError, match="not ready within"):
        await child.ready(0.01)
    await child.stop()


async def test_a_child_that_will_not_go_is_killed(tmp_path: Path) -> None:
    stubborn = "import signal; signal.signal(signal.SIGTERM, signal.SIG_IGN); print('ready')\n"
    child, events = await start(f"{stubborn}while True: signal.pause()", tmp_path)
    await child.ready(20)
    await child.stop(grace_s=0.05)
    assert not child.running
    await events.get()
    end = await events.get()
    assert isinstance(end, Exit)
    assert "killed by SIGKILL" in child.failure_notice(end.code)


async def test_a_frozen_child_stands_still_and_ends_in_good_order(tmp_path: Path) -> None:
    polite = "import signal, sys; signal.signal(signal.SIGTERM, lambda *_: sys.exit(7)); print('ready')\n"
    child, events = await start(f"{polite}while True: signal.pause()", tmp_path)
    await child.ready(20)
    child.freeze()
    assert Path(f"/proc/{child.pid}/stat").read_text().rpartition(")")[2].split()[0] == "T"
    await child.stop(grace_s=20)
    await events.get()
    assert await events.get() == Exit(child, 7)


async def test_children_die_with_their_parent(tmp_path: Path) -> None:
    """SIGKILL ends the parent, so it cannot clean up."""
    grandchild = python("print('ready'); import signal; signal.pause()")
    script = f"""
import asyncio, os, signal
from pathlib import Path
from railweave.topologies.lab.processes import Child
async def main():
    log = Path({str(tmp_path / "c.log")!r})
    child = await Child.start("c", {grandchild!r}, log, asyncio.Queue())
    await child.ready(20)
    print(child.pid, flush=True)
    os.kill(os.getpid(), signal.SIGKILL)
asyncio.run(main())
"""
    parent = await asyncio.create_subprocess_exec(*python(script), stdout=asyncio.subprocess.PIPE)
    assert parent.stdout is not None
    pid = int(await parent.stdout.readline())
    gone = asyncio.get_running_loop().create_future()
    descriptor = pidfd(pid)
    if descriptor is not None:
        asyncio.get_running_loop().add_reader(descriptor, gone.set_result, None)
        await asyncio.wait_for(gone, 20)
    assert await parent.wait() == -9


def pidfd(pid: int) -> int | None:
    try:
        return os.pidfd_open(pid)
    except ProcessLookupError:  # gone already
        return None
