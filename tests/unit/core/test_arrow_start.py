from __future__ import annotations

import threading

import pytest

from ftfile.core import arrow_start
from tests.kit.forks import Fork, held_by_another_thread


def test_the_first_fork_beside_another_thread_starts_imported_modules(monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[str] = []

    def start_imported() -> None:
        calls.append("imported")

    def start_missing() -> None:
        calls.append("missing")

    monkeypatch.setattr(arrow_start, "_STARTS", {start_imported: {"sys"}, start_missing: {"sys", "no_such_module"}})
    monkeypatch.setattr(arrow_start, "_started", set())
    with held_by_another_thread([threading.Lock()]):
        for _ in range(2):
            Fork(lambda: None).join()
            assert calls == ["imported"]


def test_the_first_calls_succeed_and_run_once(monkeypatch: pytest.MonkeyPatch) -> None:
    for modules in arrow_start._STARTS.values():  # noqa: SLF001
        for name in modules:
            pytest.importorskip(name)
    monkeypatch.setattr(arrow_start, "_started", set())
    with held_by_another_thread([threading.Lock()]):
        assert arrow_start.start_arrow()
        assert len(arrow_start._started) == len(arrow_start._STARTS)  # noqa: SLF001
        assert not arrow_start.start_arrow()
