"""The progress of a command: every command that changes a directory shows its progress on a terminal."""

from __future__ import annotations

import contextlib
import io
import logging
from importlib import import_module
from typing import TYPE_CHECKING, Any

import pytest

import ftfile
from ftfile.core.progress import Progress
from ftfile.testing.fs.memory import MemoryFileSystem, mounted
from ftfile.testing.micro_batch import MicroBatch
from ftfile.tools.cli.failures import WarningPrinter
from ftfile.tools.cli.terminal import progress_bar
from tests.kit.parameters import parametrize
from tests.unit.tools.cli.running import run
from tests.unit.tools.cli.test_interrupted import CASES

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

LAST_REPORTS = {
    "write": ("write", "files"),
    "flush": ("flush", "files"),
    "compact": ("compact", "files"),
    "drop": ("publish", "files"),
    "delete": ("delete", "files"),
    "restore": ("publish", "files"),
    "repair": ("repair", "steps"),
    "vacuum": ("vacuum", "files"),
    "expire": ("expire", "files"),
    "export": ("export", "steps"),
    "export again": ("export", "versions"),
    "migrate": ("migrate", "files"),
    "kv compact": ("compact", "compactions"),
}


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.fixture
def _wide(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", "xterm-256color")
    monkeypatch.setenv("COLUMNS", "100")


@parametrize("name", LAST_REPORTS, quick=1)
def test_every_command_tells_how_far_it_is(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    reports: list[Progress] = []

    @contextlib.contextmanager
    def noted(_: str) -> Iterator[Any]:
        yield reports.append

    for module in ("change", "maintain_commands", "store_commands", "write_commands"):
        monkeypatch.setattr(import_module(f"ftfile.tools.cli.{module}"), "progress_bar", noted)
    case = CASES[name]
    with mounted(MemoryFileSystem("progress")) as url:
        case.write(url)
        run(*case.command, url, *case.options)
    MemoryFileSystem.drop("progress")
    assert reports
    assert (reports[-1].operation, reports[-1].unit) == LAST_REPORTS[name]
    assert reports[-1].done == reports[-1].total
    assert [each.done for each in reports] == sorted({each.done for each in reports})


def test_every_command_that_changes_something_is_tried() -> None:
    """The undo of a migration is short and shows no progress."""
    assert LAST_REPORTS.keys() == CASES.keys() - {"migrate --undo"}


@pytest.mark.parametrize("to", ["delta", "iceberg"])
def test_a_first_export_counts_each_file_twice(to: str, tmp_path: Path) -> None:
    """A file is counted when its metadata is read, and again when the metadata is written."""
    query = MicroBatch(str(tmp_path / "out"), {"id": "long"}, {"fileFormat": "parquet"})
    query.run(0, [[{"id": number}] for number in range(3)])
    reports: list[tuple[int, int]] = []
    ftfile.export(query.path, to, progress=lambda now: reports.append((now.done, now.total)))
    assert reports == [(3, 6), (6, 6)]


@pytest.mark.usefixtures("_wide")
@pytest.mark.parametrize(
    ("now", "shown"),
    [
        (
            Progress(operation="export", done=1, total=4, done_bytes=0, total_bytes=0, elapsed_s=5.0, unit="versions"),
            "1 of 4 versions, 15 s left",
        ),
        (
            Progress(operation="compact", done=1, total=4, done_bytes=1 << 20, total_bytes=4 << 20, elapsed_s=5.0),
            "1 of 4 files, 1.0 MiB of 4.0 MiB, 15 s left",
        ),
    ],
    ids=["export", "compact"],
)
def test_what_is_on_the_screen(now: Progress, shown: str) -> None:
    with contextlib.redirect_stderr(Terminal()) as screen, progress_bar("x") as progress:
        assert progress is not None
        progress(now)
    assert shown in screen.getvalue()


@pytest.mark.usefixtures("_wide")
def test_a_warning_stands_above_the_bar() -> None:
    """The same warning is shown once, in a separate line."""
    warning = logging.LogRecord("ftfile", logging.WARNING, "", 0, "[job x] it is\nlate", None, None)
    with contextlib.redirect_stderr(Terminal()) as screen, progress_bar("compact"):
        printer = WarningPrinter()
        for _ in range(2):
            printer.emit(warning)
    assert screen.getvalue().count("ftfile: warning: it is late\n") == 1


def test_a_pipe_has_none() -> None:
    with contextlib.redirect_stderr(io.StringIO()) as pipe, progress_bar("compact") as progress:
        assert progress is None
    assert pipe.getvalue() == ""
