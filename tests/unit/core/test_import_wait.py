from __future__ import annotations

import importlib
import sys
import threading
import time
from typing import TYPE_CHECKING

import pytest

import ftfile
from ftfile.core import import_wait
from tests.kit.forks import Fork

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

# It ends when the test lets it.
SLOW = "import threading, {signals} as signals\nsignals.begun.set()\nsignals.may_end.wait()\n"


class SlowImport:
    """An import in another thread."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.begun, self.may_end = threading.Event(), threading.Event()
        self.thread = threading.Thread(target=importlib.import_module, args=(name,))

    def end(self) -> None:
        self.may_end.set()
        self.thread.join()

    def end_soon(self) -> None:
        threading.Timer(0.05, self.may_end.set).start()


def begun_import(name: str, folder: Path, monkeypatch: pytest.MonkeyPatch) -> SlowImport:
    slow = SlowImport(name)
    monkeypatch.setitem(sys.modules, "signals_of_the_test", slow)
    module = folder / f"{name.rpartition('.')[2]}.py"
    module.write_text(SLOW.format(signals="signals_of_the_test"), encoding="utf-8")
    slow.thread.start()
    assert slow.begun.wait(60)
    return slow


@pytest.fixture
def slow(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[SlowImport]:
    """The import of a module of this package, in progress in another thread."""
    monkeypatch.setattr(ftfile, "__path__", [*ftfile.__path__, str(tmp_path)])
    slow = begun_import("ftfile.slow_module", tmp_path, monkeypatch)
    try:
        yield slow
    finally:
        slow.end()
        sys.modules.pop(slow.name, None)


def fork_at_once() -> None:
    began_s = time.monotonic()
    Fork(lambda: None).join()
    assert time.monotonic() - began_s < import_wait.WAIT_S / 2


def imports(name: str) -> None:
    assert importlib.import_module(name).__name__ == name


def test_a_fork_waits_until_another_thread_has_imported_a_module(slow: SlowImport) -> None:
    slow.end_soon()
    Fork(lambda: imports(slow.name)).join()


def test_a_fork_waits_for_a_limited_time(slow: SlowImport, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(import_wait, "WAIT_S", 0.05)
    Fork(lambda: None).join()
    assert slow.thread.is_alive()


def test_a_python_without_a_list_of_imports_does_not_wait(slow: SlowImport, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "_frozen_importlib", threading)
    fork_at_once()
    assert slow.thread.is_alive()


def test_a_fork_does_not_wait_for_an_import_of_its_own_thread(slow: SlowImport) -> None:
    slow.end()
    sys.modules.pop(slow.name)
    slow.begun.set = fork_at_once  # type: ignore[method-assign] # the module calls it
    imports(slow.name)


def test_a_fork_does_not_wait_for_a_module_of_another_package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Such as a program that another thread imports in order to run it."""
    monkeypatch.syspath_prepend(tmp_path)
    slow = begun_import("program_of_a_user", tmp_path, monkeypatch)
    try:
        fork_at_once()
        assert slow.thread.is_alive()
    finally:
        slow.end()
        sys.modules.pop(slow.name)


def test_a_fork_does_not_wait_after_a_failed_import() -> None:
    with pytest.raises(ImportError):
        importlib.import_module("ftfile.no_such_module")
    fork_at_once()


def test_a_fork_waits_for_a_module_of_python(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Functions of this package import some of them when they are called."""
    import encodings

    monkeypatch.setattr(encodings, "__path__", [*encodings.__path__, str(tmp_path)])
    slow = begun_import("encodings.slow_module", tmp_path, monkeypatch)
    try:
        slow.end_soon()
        Fork(lambda: None).join()
        assert slow.may_end.is_set()
    finally:
        slow.end()
        sys.modules.pop(slow.name, None)


def test_a_fork_that_did_not_wait_long_enough_imports_the_module_again(
    slow: SlowImport, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(import_wait, "WAIT_S", 0.05)

    def imports_again() -> None:
        slow.may_end = threading.Event()
        slow.may_end.set()
        imports(slow.name)

    Fork(imports_again).join(idle_s=5)
    assert slow.thread.is_alive()
