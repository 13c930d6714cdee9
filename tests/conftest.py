# SPDX-License-Identifier: Apache-2.0
"""Rules of all test tiers: parallel runs, coroutine tests, and the final summary."""

from __future__ import annotations

import asyncio
import inspect
import signal
from collections import Counter
from contextlib import AbstractAsyncContextManager, AsyncExitStack
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

# A shell's background job ignores SIGINT, and so would the commands under test.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

# Examples have no deadline: on a busy machine, any example may be slow.
settings.register_profile("busy machine", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("busy machine")

TIERS = ("unit", "protocol", "dataplane", "system", "gpu")
TOGETHER = {"dataplane": "dataplane", "gpu": "gpu"}  # tiers whose tests share processes or a device
DEADLINE_S = 60.0  # for a coroutine test
OUTCOMES = ("passed", "failed", "error", "skipped")


def _tier(nodeid: str) -> str:
    parts = Path(nodeid.split("::", maxsplit=1)[0]).parts
    return next((tier for tier in TIERS if tier in parts), "unit")


@pytest.hookimpl(tryfirst=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> bool | None:
    """Run a coroutine test within a deadline. Enter asynchronous context managers among its fixtures."""
    if not inspect.iscoroutinefunction(pyfuncitem.obj):
        return None

    async def body() -> None:
        given = {name: pyfuncitem.funcargs[name] for name in inspect.signature(pyfuncitem.obj).parameters}
        async with asyncio.timeout(DEADLINE_S), AsyncExitStack() as stack:
            for name, value in given.items():
                if isinstance(value, AbstractAsyncContextManager):
                    given[name] = await stack.enter_async_context(value)
            await pyfuncitem.obj(**given)

    asyncio.run(body())
    return True


@pytest.hookimpl(tryfirst=True)  # before xdist's hook, which reads the groups
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Let one worker run the tests of a system file, which share fixtures. Labs may run side by side."""
    for item in items:
        tier = _tier(item.nodeid)
        group = item.path.stem if tier == "system" else TOGETHER.get(tier)
        if group and not item.get_closest_marker("xdist_group"):
            item.add_marker(pytest.mark.xdist_group(group))


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Print the number of tests per tier, the summary lines of tests, and the reasons for skipped tests."""
    counts: Counter[tuple[str, str]] = Counter()
    absent: Counter[str] = Counter()
    reported: list[object] = []
    for outcome in OUTCOMES:
        for report in terminalreporter.stats.get(outcome, []):
            counts[_tier(report.nodeid), outcome] += 1
            reported += [value for name, value in getattr(report, "user_properties", []) if name == "summary"]
            if outcome == "skipped" and isinstance(report.longrepr, tuple):
                absent[report.longrepr[2].removeprefix("Skipped: ")] += 1
    terminalreporter.section("tiers")
    for tier in TIERS:
        numbers = ", ".join(f"{counts[tier, o]} {o}" for o in OUTCOMES if counts[tier, o])
        terminalreporter.write_line(f"{tier:<10} {numbers or 'none run'}")
    for line in reported:
        terminalreporter.write_line(str(line))
    for reason, number in sorted(absent.items()):
        terminalreporter.write_line(f"absent: {reason} ({number} tests)")
