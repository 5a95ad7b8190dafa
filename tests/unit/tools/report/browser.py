"""A headless browser that tests control by the DevTools protocol over two pipes, without port, driver or package."""

from __future__ import annotations

import fcntl
import json
import os
import select
import shutil
import signal
from pathlib import Path
from typing import Any

import pytest

__all__ = ("Browser", "Page")

HOME = Path(__file__).parents[4] / ".servers/browser"
INSTALLED = ("chromium", "chromium-browser", "google-chrome")
ANSWER_S = 120
FREE_FD = 20  # the browser reads from descriptor 3 and writes to descriptor 4
FLAGS = (
    *("--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--hide-scrollbars", "--no-first-run"),
    *("--disable-background-networking", "--disable-component-update", "--no-zygote", "--remote-debugging-pipe"),
)


def program() -> tuple[str, dict[str, str]]:
    """Return the browser that `.ci/browser` installed, or an installed browser, and its environment."""
    if (HOME / "stamp").exists():
        own = {"LD_LIBRARY_PATH": str(HOME / "lib"), "FONTCONFIG_PATH": str(HOME)}
        return str(HOME / "chromium"), {**os.environ, **own}
    found = next(filter(None, map(shutil.which, INSTALLED)), None)
    if found is None:
        pytest.skip("no Chromium is installed, and .ci/browser could not bring one")
    return found, dict(os.environ)


class Browser:
    """A browser process that opens one page at a time."""

    def __init__(self, profile: Path) -> None:
        path, environment = program()
        (reads, self._out), (self._in, writes) = os.pipe(), os.pipe()
        theirs = [fcntl.fcntl(number, fcntl.F_DUPFD, FREE_FD) for number in (reads, writes)]
        quiet = (os.POSIX_SPAWN_OPEN, 2, os.devnull, os.O_WRONLY, 0)
        pairs = [(os.POSIX_SPAWN_DUP2, number, place) for number, place in zip(theirs, (3, 4), strict=True)]
        arguments = [path, *FLAGS, f"--user-data-dir={profile}"]
        self._process = os.posix_spawn(path, arguments, environment, file_actions=[*pairs, quiet], setpgroup=0)
        for number in (reads, writes, *theirs):
            os.close(number)
        self._buffer = b""
        self._number = 0
        self.events: list[dict[str, Any]] = []

    def __enter__(self) -> Browser:  # noqa: PYI034 - typing.Self comes with Python 3.11
        return self

    def __exit__(self, *_: object) -> None:
        os.close(self._out)
        os.close(self._in)
        os.killpg(self._process, signal.SIGKILL)
        os.waitpid(self._process, 0)

    def call(self, method: str, session: str | None = None, **parameters: object) -> dict[str, Any]:
        """Return the result of a method. Events that arrive before it are added to `events`."""
        self._number += 1
        message = {"id": self._number, "method": method, "params": parameters}
        text = json.dumps(message | ({"sessionId": session} if session else {}))
        os.write(self._out, text.encode() + b"\0")
        while (answer := self._read()).get("id") != self._number:
            self.events.append(answer)
        assert "error" not in answer, f"{method}: {answer['error']}"
        result: dict[str, Any] = answer["result"]
        return result

    def wait_for(self, method: str) -> None:
        """Wait until an event of this method has arrived."""
        while not any(event.get("method") == method for event in self.events):
            self.events.append(self._read())

    def _read(self) -> dict[str, Any]:
        while b"\0" not in self._buffer:
            assert select.select([self._in], [], [], ANSWER_S)[0], "the browser does not answer"
            read = os.read(self._in, 1 << 20)
            assert read, "the browser has ended"
            self._buffer += read
        text, _, self._buffer = self._buffer.partition(b"\0")
        found: dict[str, Any] = json.loads(text)
        return found


class Page:
    """A page in a window of this width and colour scheme."""

    def __init__(self, browser: Browser, file: Path, width: int = 1_440, scheme: str = "light") -> None:
        self._browser = browser
        target = browser.call("Target.createTarget", url="about:blank")["targetId"]
        self._session = browser.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ("Page", "Network", "Runtime", "Log", "Accessibility"):
            self.call(f"{domain}.enable")
        self.call(
            "Emulation.setDeviceMetricsOverride", width=width, height=900, deviceScaleFactor=1, mobile=width < 500
        )
        self.call("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": scheme}])
        browser.events.clear()
        self.call("Page.navigate", url=file.as_uri())
        browser.wait_for("Page.loadEventFired")

    def call(self, method: str, **parameters: object) -> dict[str, Any]:
        """Return the result of a method of the page."""
        return self._browser.call(method, self._session, **parameters)

    def value(self, expression: str) -> Any:
        """Return the value of a JavaScript expression."""
        answer = self.call("Runtime.evaluate", expression=expression, returnByValue=True)
        assert "exceptionDetails" not in answer, answer
        return answer["result"].get("value")

    def press(self, key: str) -> None:
        """Press and release a key."""
        code = {"Tab": 9, "End": 35, "Home": 36, "ArrowLeft": 37, "ArrowRight": 39, "Enter": 13}[key]
        more = {"text": "\r"} if key == "Enter" else {}
        for kind in ("keyDown", "keyUp"):
            self.call("Input.dispatchKeyEvent", type=kind, key=key, code=key, windowsVirtualKeyCode=code, **more)

    def requests(self) -> list[str]:
        """Return the URLs that the page has requested since it was opened."""
        requests = self._told("Network.requestWillBeSent")
        return [params["request"]["url"] for params in requests]

    def complaints(self) -> list[dict[str, Any]]:
        """Return the errors, warnings and exceptions in the console."""
        found = self._told("Runtime.exceptionThrown") + self._told("Runtime.consoleAPICalled")
        return found + [params for params in self._told("Log.entryAdded") if params["entry"]["level"] != "info"]

    def _told(self, method: str) -> list[dict[str, Any]]:
        return [event["params"] for event in self._browser.events if event.get("method") == method]
