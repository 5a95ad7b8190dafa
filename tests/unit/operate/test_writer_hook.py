"""`on_publish` of `ftfile.writer`: each visible file of a commit is reported at least once, in any process."""

from __future__ import annotations

import contextlib
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

import ftfile
from ftfile.core.errors import CommitError, ConfigError, PermissionDenied, StorageError, UserCodeError
from ftfile.log.commit_log import CommitLog
from ftfile.log.format.model import UNREPORTED_BATCHES
from ftfile.operate.writers import application_writer
from ftfile.storage.local import LocalFileSystem
from ftfile.testing.context import open_filesystem
from ftfile.testing.fs.memory import MemoryFileSystem, mounted
from tests.histories import hook
from tests.kit.interrupts import Interrupt
from tests.unit.operate.numbered_rows import lose_the_response, opened, rows
from tests.unit.writing.files import user_code

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ftfile.operate.writers.application_writer import DirectoryWriter

HOOK = "tests.unit.writing.files.user_code:hear"
FAILING = "tests.unit.writing.files.user_code:hear_and_fail"


@pytest.fixture
def out(tmp_path: Path) -> str:
    return str(tmp_path / "out")


@pytest.fixture(autouse=True)
def heard() -> Iterator[list[Any]]:
    user_code.HEARD.clear()
    yield user_code.HEARD
    user_code.HEARD.clear()


def reported(heard: list[Any]) -> list[str]:
    return sorted(part.path for part in heard)


def files(out: str) -> list[str]:
    return sorted(file.path for file in ftfile.open(out).files())


def marks(out: str) -> list[str]:
    return [*CommitLog(open_filesystem(out)).refresh().tables.get(UNREPORTED_BATCHES, ())]


def commit(writer: DirectoryWriter, number: int) -> None:
    writer.write(rows(number))
    writer.commit(number)


def test_each_file_once_in_one_process(out: str, heard: list[Any]) -> None:
    with opened(out, on_publish=HOOK) as writer:
        for number in range(5):
            commit(writer, number)
            writer.commit(f"only a position after {number}")
    assert reported(heard) == files(out)
    assert len(marks(out)) == 0  # the last commit has no files, and drops the mark of the last file


def test_a_process_that_dies_before_the_call(out: str, heard: list[Any], monkeypatch: pytest.MonkeyPatch) -> None:
    writer = opened(out, on_publish=HOOK)
    commit(writer, 1)
    monkeypatch.setattr(application_writer, "report_pending", interrupt)
    with pytest.raises(KeyboardInterrupt):
        commit(writer, 2)
    monkeypatch.undo()
    writer = opened(out, on_publish=HOOK)
    assert writer.position == 2
    assert set(reported(heard)) == set(files(out))


def interrupt(*_: object) -> list[int]:
    raise KeyboardInterrupt


def test_a_process_whose_files_are_not_visible_yet(out: str, heard: list[Any], monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object) -> None:
        raise PermissionDenied("rename", "x", "no")

    writer = opened(out, on_publish=HOOK)
    with monkeypatch.context() as patch:
        patch.setattr(LocalFileSystem, "rename", fail)
        with pytest.raises(CommitError):
            commit(writer, 1)
    assert not heard
    opened(out, on_publish=HOOK)
    assert reported(heard) == files(out)


def test_after_an_abort_of_a_commit_that_is_in_the_log(
    out: str, heard: list[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    writer = opened(out, on_publish=HOOK)
    lose_the_response(monkeypatch)
    with pytest.raises((CommitError, StorageError)):
        commit(writer, 1)
    monkeypatch.undo()
    assert not heard
    writer.abort()
    assert writer.position == 1
    assert reported(heard) == files(out)


def test_a_function_that_fails_is_called_again(out: str, heard: list[Any]) -> None:
    writer = opened(out, on_publish=FAILING)
    with pytest.raises(UserCodeError):
        commit(writer, 1)
    with pytest.raises(UserCodeError):
        writer.commit(1)
    assert reported(heard) == 2 * files(out)
    with pytest.raises(UserCodeError):
        opened(out, on_publish=FAILING)
    writer = opened(out, on_publish=HOOK)
    heard.clear()
    commit(writer, 2)
    assert len(heard) == 1


def test_a_function_that_does_not_exist_opens_nothing(out: str) -> None:
    with pytest.raises(ConfigError, match="onPublish"):
        opened(out, on_publish="tests.unit.writing.files.user_code:missing")
    assert not Path(out, "_ftfile/log").exists()


def test_a_flush_needs_no_function_for_batches(out: str, heard: list[Any]) -> None:
    writer = opened(out, on_publish=HOOK)
    commit(writer, 1)
    ftfile.flush(out)
    assert len(heard) == 1


@pytest.mark.parametrize("options", [{}, {"rolling": "policy", "max_records_per_file": 2}], ids=["files", "rolling"])
def test_an_interrupt_at_any_line_leaves_no_file_unreported(seed: int, options: dict[str, Any]) -> None:
    below = (str(Path(application_writer.__file__).parents[2]),)
    for line in range(1 + seed % 29, 10_000, 29):
        with mounted(MemoryFileSystem(f"unreported-{line}")) as out:
            hook.HEARD.clear()
            writer = opened(out, on_publish="tests.histories.hook:hear", **options)
            commit(writer, 1)
            at_line = Interrupt(line, below=below)
            with contextlib.suppress(KeyboardInterrupt), at_line:
                commit(writer, 2)
            opened(out, on_publish="tests.histories.hook:hear", **options)
            assert set(files(out)) == hook.HEARD, line
        MemoryFileSystem.drop(f"unreported-{line}")
        if not at_line.is_raised:
            assert line > 1000
            return
    pytest.fail("the commit has more lines")
