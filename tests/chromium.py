# SPDX-License-Identifier: Apache-2.0
"""Headless Chromium for tests, through its DevTools protocol on a pair of pipes."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import subprocess
from pathlib import Path
from types import TracebackType
from typing import Any

PROGRAM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
BAD = ("error", "warning", "assert")  # kinds of messages
# Wait until a condition holds. The test's own timeout is the deadline.
WAIT = "new Promise((done) => {{ const look = () => ({}) ? done(true) : setTimeout(look, 20); look(); }})"


class Browser:
    """`with Browser(folder) as browser:` is a Chromium with one empty page."""

    def __init__(self, folder: Path) -> None:
        """Keep the browser's profile in `folder`."""
        self._folder = folder
        self._count = 0
        self._session = ""
        self._loaded: set[str] = set()  # documents
        self.complaints: list[str] = []  # errors and warnings of the console, exceptions, failed loads

    def __enter__(self) -> Browser:
        """Start the browser."""
        orders, self._orders = os.pipe()
        answers, results = os.pipe()
        program = [str(PROGRAM), "--headless=new", "--no-sandbox", "--disable-gpu", "--remote-debugging-pipe"]
        program += [f"--user-data-dir={self._folder}", "--disable-dev-shm-usage", "--no-first-run"]
        self._process = subprocess.Popen(
            ["bash", "-c", f'exec "$@" 3<&{orders} 4>&{results}', "bash", *program],
            pass_fds=(orders, results),
            stderr=subprocess.DEVNULL,
            env={name: value for name, value in os.environ.items() if name != "LD_PRELOAD"},  # a sanitizer
        )
        os.close(orders)
        os.close(results)
        self._answers = os.fdopen(answers, "rb")
        self._rest = b""
        with contextlib.ExitStack() as begun:
            begun.push(self)  # end the browser if a test's deadline expires here
            target = self.call("Target.createTarget", url="about:blank")["targetId"]
            session = self.call("Target.attachToTarget", targetId=target, flatten=True)
            self._session = session["sessionId"]
            for domain in ("Page", "Runtime", "Log"):
                self.call(f"{domain}.enable")
            self.call("Page.setLifecycleEventsEnabled", enabled=True)
            begun.pop_all()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """End the browser."""
        self._process.kill()
        self._process.wait()
        self._answers.close()
        os.close(self._orders)

    def call(self, method: str, **parameters: Any) -> dict[str, Any]:
        """Call a method of the protocol. Note complaints that arrive before the answer."""
        self._count += 1
        message = {"id": self._count, "method": method, "params": parameters}
        if self._session:
            message["sessionId"] = self._session
        os.write(self._orders, json.dumps(message).encode() + b"\0")
        while True:
            answer = self._read()
            if answer.get("id") == self._count:
                assert "error" not in answer, answer
                result: dict[str, Any] = answer["result"]
                return result
            self._note(answer)

    def _read(self) -> dict[str, Any]:
        while b"\0" not in self._rest:
            block = os.read(self._answers.fileno(), 1 << 16)
            assert block, "Chromium has ended"
            self._rest += block
        text, _, self._rest = self._rest.partition(b"\0")
        message: dict[str, Any] = json.loads(text)
        return message

    def _note(self, event: dict[str, Any]) -> None:
        method, parameters = event.get("method", ""), event.get("params", {})
        if method == "Page.lifecycleEvent" and parameters["name"] == "load":
            self._loaded.add(parameters["loaderId"])
        logged = method == "Log.entryAdded" and parameters["entry"]["level"] in BAD
        printed = method == "Runtime.consoleAPICalled" and parameters["type"] in (
            "error",
            "warning",
            "assert",
        )
        if logged or printed or method == "Runtime.exceptionThrown":
            self.complaints.append(json.dumps(parameters))

    def open(self, url: str) -> None:
        """Open a page; return when it is loaded."""
        loader = self.call("Page.navigate", url=url)["loaderId"]
        while loader not in self._loaded:
            self._note(self._read())

    def value(self, expression: str) -> Any:
        """Return the value of an expression in the page."""
        result = self.call("Runtime.evaluate", expression=expression, awaitPromise=True, returnByValue=True)
        assert "exceptionDetails" not in result, result
        return result["result"].get("value")

    def until(self, condition: str) -> None:
        """Wait until a condition holds in the page."""
        self.value(WAIT.format(condition))
