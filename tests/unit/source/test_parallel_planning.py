"""If the calls of a storage system are slow, a plan opens several files at once, and reads the same lines."""

from __future__ import annotations

import itertools
import threading
from collections import Counter
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from ftfile.core.errors import NotFound, PermissionDenied
from ftfile.source.planner import Planner
from ftfile.storage.registry import WrapperFileSystem
from ftfile.testing.fs.memory import MemoryFileSystem
from tests.unit.source import tailing as tailing_module
from tests.unit.source.tailing import Tailing, parked
from tests.unit.source.test_rotation_histories import History

if TYPE_CHECKING:
    from collections.abc import Callable

    from ftfile.storage.api import Capabilities, FileSystem, InputFile

THREADS = 8
BOTH = pytest.mark.parametrize("identity", ["native", "content"])


class _Remote(WrapperFileSystem):
    """A storage system whose calls are slow enough to run several at once.

    Args:
        inner: the storage.
        concurrency: the number of concurrent calls that the storage reports.
        meets: each call of `open` waits for as many concurrent calls as are allowed.
    """

    def __init__(self, inner: FileSystem, *, concurrency: int = THREADS, meets: bool = False) -> None:
        super().__init__(inner)
        self.concurrency = concurrency
        self.opened: list[str] = []
        self.failing: dict[str, Callable[..., Exception]] = {}
        self._barrier = threading.Barrier(THREADS) if meets else None

    @property
    def capabilities(self) -> Capabilities:
        return replace(self.inner.capabilities, concurrency=self.concurrency)

    def open(self, path: str) -> InputFile:
        self.opened.append(path)
        if self._barrier is not None:
            self._barrier.wait(timeout=300)
        if path in self.failing:
            raise self.failing[path]("open", path, "as the test wants it")
        return super().open(path)


def remote(tailing: Tailing, **options: Any) -> _Remote:
    """Replace the file system of a planner by this storage."""
    tailing.fs = storage = _Remote(tailing.fs, **options)
    tailing.planner = Planner(storage, tailing.settings, tailing.context)
    return storage


def line(name: str, number: int) -> str:
    return f"{name} {number} {'x' * 300}\n"


@BOTH
def test_new_changed_and_renamed_files_are_opened_at_once(identity: str) -> None:
    """Each call of `open` waits for the other calls, so consecutive calls would time out."""
    tailing = Tailing(fileIdentity=identity)
    storage = remote(tailing, meets=True)
    names = [f"{number}.log" for number in range(THREADS)]
    for number in range(3):
        for name in names:
            tailing.append(name, line(name, number))
        if number == 1:
            tailing.restart()
        tailing.scan()
    assert sorted(tailing.reads) == sorted((name, line(name, number).encode()) for name in names for number in range(3))
    for name in names:
        tailing.rename(name, f"{name}.1")
        tailing.write(name, line(name, 3))
    tailing.scan()
    assert sorted(tailing.last) == [(name, line(name, 3)) for name in names]
    assert len(storage.opened) % THREADS == 0


@pytest.mark.slow
@BOTH
@pytest.mark.parametrize("seed", range(12))
def test_the_lines_are_those_of_one_file_after_the_other(
    seed: int, identity: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tailing_module, "_numbers", itertools.repeat("alike"))
    lines = []
    for concurrency in (1, THREADS):
        MemoryFileSystem.drop("tailing-alike")
        history = History(seed, identity)
        remote(history.tailing, concurrency=concurrency)
        history.run(30)
        lines.append(Counter(history.lines()))
    assert lines[0] == lines[1]


def _lines(number: int) -> list[str]:
    """Return the lines of one of ten files."""
    return (line("a", number) * (number + 1) + line("b", number)).splitlines()


@pytest.mark.slow
@BOTH
@pytest.mark.parametrize("limits", [{}, {"maxFilesPerTrigger": "3"}, {"maxBytesPerTrigger": "1000"}])
def test_files_that_cannot_be_opened_are_tried_again_and_those_that_are_gone_left_out(
    identity: str, limits: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tailing_module, "_numbers", itertools.repeat("alike"))
    for concurrency in (1, THREADS):
        MemoryFileSystem.drop("tailing-alike")
        tailing = Tailing(fileIdentity=identity, maxRetries="1", **limits)
        storage = remote(tailing, concurrency=concurrency)
        for number in range(10):
            tailing.write(f"{number}.log", line("a", number) * (number + 1))
        storage.failing = {"in/3.log": PermissionDenied, "in/5.log": NotFound}
        tailing.drain()
        storage.failing = {"in/5.log": NotFound, "in/7.log": PermissionDenied}
        for number in range(10):
            tailing.append(f"{number}.log", line("b", number))
        tailing.drain()
        tailing.drain()
        assert {file.path for plan in tailing.plans for file in plan.refused} == {"in/3.log", "in/7.log"}
        assert not any(parked(plan) for plan in tailing.plans)
        storage.failing = {"in/5.log": NotFound}
        tailing.drain(seconds=1000)
        assert Counter(tailing.text.splitlines()) == Counter(
            text for number in range(10) if number != 5 for text in _lines(number)
        )
        assert "in/5.log" not in {each.path for plan in tailing.plans for each in plan.ranges}


@BOTH
def test_no_more_files_are_opened_than_a_plan_may_have(identity: str) -> None:
    tailing = Tailing(fileIdentity=identity, maxFilesPerTrigger="2")
    storage = remote(tailing)
    for number in range(30):
        tailing.write(f"{number}.log", line("a", number))
    tailing.scan()
    assert len(tailing.last) == 2
    assert len(set(storage.opened)) == 2
