"""Defects of Apex Malhar's AbstractFileOutputOperator that ftfile does not have (docs/internals/ancestors.md)."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

import ftfile
from ftfile.core.context import SYSTEM
from ftfile.core.errors import CorruptData, EncodingError, NameCollision, NotFound, OutcomeUnknown, UnknownQuery
from ftfile.log.checkpoints import encode_checkpoint
from ftfile.log.checks import STATS_MAX
from ftfile.storage.local import LocalFileSystem
from ftfile.storage.registry import WrapperFileSystem
from ftfile.testing.checker import check_directory
from ftfile.testing.context import ManualClock, current, open_filesystem, repeatable
from ftfile.testing.fs.faulty import STANDARD_FAULTS, Fault, FaultyFileSystem
from ftfile.testing.fs.memory import mounted
from ftfile.testing.fs.pickled_by_reference import PickledByReference
from ftfile.testing.micro_batch import MicroBatch
from tests.kit.parameters import parametrize

if TYPE_CHECKING:
    from ftfile.storage.api import FileInfo, FileSystem

Rows = list[dict[str, Any]]
OPEN = {"rolling": "policy"}


@pytest.fixture
def out(tmp_path: Path) -> str:
    return str(tmp_path / "out")


@pytest.fixture
def disk(out: str) -> FileSystem:
    return LocalFileSystem(out, SYSTEM)


def stream(out: str, **options: str) -> MicroBatch:
    columns = {"value": "string", "name": "string"}
    return MicroBatch(out, columns, {"fileFormat": "text", "fileNameColumn": "name", **options})


def rows(letters: str, *names: str | None) -> Rows:
    return [{"value": letter, "name": name} for letter in letters for name in names or ("file",)]


def committed(out: str) -> str:
    return "".join(sorted(ftfile.open(out).to_arrow()["value"].to_pylist()))


def visible(out: str) -> dict[str, str]:
    files = {str(path.relative_to(out)): path for path in sorted(Path(out).rglob("*")) if path.is_file()}
    return {name: path.read_text() for name, path in files.items() if not name.startswith("_ftfile/")}


def spool(out: str, batch: int) -> Path:
    (found,) = Path(out, "_ftfile/staged").glob(f"*/_{batch}-*.spool")
    return found


def records(out: str) -> list[Path]:
    return list(Path(out, "_ftfile/log").glob("*.record"))


def content_of(out: str) -> str:
    check_directory(open_filesystem(out))
    return "".join(sorted("".join(visible(out).values()).replace("\n", "")))


class TestD1:
    """An open file is shorter than the checkpoint's length: Apex copies garbage forever."""

    @pytest.mark.slow
    def test_what_is_too_short_is_refused_by_name_and_length(self, out: str) -> None:
        query = stream(out, **OPEN)
        query.run(0, [rows("abc")])
        query.run(1, [rows("d")])
        whole = spool(out, 0).read_bytes()
        spool(out, 0).write_bytes(whole[:-1])
        query.restart()
        with pytest.raises(CorruptData, match=rf"{spool(out, 0).name}.*expected 6 bytes.*found 5 bytes"):
            ftfile.flush(out, context=current())
        query.run(2, [rows("e")])
        assert list(visible(out).values()) == ["d\n"]
        spool(out, 0).write_bytes(whole)
        ftfile.flush(out, context=current())
        assert content_of(out) == "abcde"

    def test_a_staged_part_that_lost_bytes_is_not_recorded(self, out: str) -> None:
        query = stream(out)
        (message,) = query.run_tasks(0, [rows("abc")])
        staged = Path(out, message.parts[0].path)
        staged.write_bytes(staged.read_bytes()[:-1])
        with pytest.raises(CorruptData, match="expected 6 bytes, found 5 bytes"):
            query.commit(0, [message])
        assert not records(out)


class TestD2:
    """An open file is missing: Apex reports nothing and starts an empty file."""

    def test_a_missing_file_is_an_error_that_names_it(self, out: str) -> None:
        query = stream(out, **OPEN)
        query.run(0, [rows("abc")])
        spool(out, 0).unlink()
        query.restart()
        query.run(1, [rows("d")])
        with pytest.raises(NotFound, match="_ftfile/staged"):
            ftfile.flush(out, context=current())
        with pytest.raises((NotFound, CorruptData), match="_ftfile/staged"):
            ftfile.open(out).to_arrow()
        assert list(visible(out).values()) == ["d\n"]

    def test_a_finished_file_that_is_missing_is_an_error_too(self, out: str) -> None:
        stream(out).run(0, [rows("abc")])
        (name,) = visible(out)
        Path(out, name).unlink()
        with pytest.raises((NotFound, CorruptData), match=name):
            ftfile.open(out).to_arrow()


@parametrize("fault", STANDARD_FAULTS, ids=lambda fault: f"{fault.error.__name__}-{fault.effect}", quick=1)
@pytest.mark.parametrize("operation", ["create", "open"])
def test_d3(out: str, disk: FileSystem, fault: Fault, operation: str) -> None:
    """A file cannot be opened: Apex continues without a stream, for every cause but one."""
    broken = replace(fault, times=99, operations=frozenset({operation}), path="*.spool")
    with mounted(FaultyFileSystem(disk, [broken])) as url, repeatable():
        query = stream(url, **OPEN)
        with pytest.raises(fault.error, match="injected"):
            run_and_flush(query)
    query.path = out
    query.restart()
    run_and_flush(query)
    assert content_of(out) == "abc"


def run_and_flush(query: MicroBatch) -> None:
    query.run(0, [rows("abc")])
    ftfile.flush(query.path, context=current())


def test_d5(out: str) -> None:
    """In one millisecond two attempts write the same part: Apex gives both the same temporary name."""
    with repeatable(ManualClock()):
        query = stream(out)
        planned, writer = query.pickled_plan(), query.identity(0)
        lost = query.run_task(planned, writer, 0, rows("x"))
        chosen = query.run_task(planned, writer, 0, rows("abc"))
        assert lost.parts[0].path != chosen.parts[0].path
        query.commit(0, [chosen])
    assert content_of(out) == "abc"


def test_d6(out: str) -> None:
    """Apex finds no leftovers of files whose names have directories."""
    query = stream(out)
    planned, writer = query.pickled_plan(), query.identity(0)
    (stray,) = query.run_task(planned, writer, 0, rows("x", "deep/er/file")).parts
    query.run(0, [rows("abc", "deep/er/file")])
    report = ftfile.vacuum(out, dry_run=False, retention="0s", force=True, context=current())
    assert stray.path in [file.path for file in report.files]
    assert not Path(out, stray.path).exists()
    assert content_of(out) == "abc"


@pytest.mark.slow
def test_d7(tmp_path: Path) -> None:
    """The state of Apex grows with every file name there ever was; see also test_flat.py."""
    sizes = []
    for names in (1, 30):
        query = stream(str(tmp_path / str(names)))
        for batch in range(6):
            query.run(batch, [rows("x", *[f"{batch}/{name}" for name in range(names)])])
        sizes.append((len(query.pickled_plan()), len(encode_checkpoint(query.config().log(current()).refresh()))))
    few, many = sizes
    assert many == pytest.approx(few, abs=50)


class TestD8:
    """An application with empty state removes the existing files one by one."""

    def test_another_query_is_refused(self, out: str) -> None:
        stream(out).run(0, [rows("abc")])
        before = visible(out)
        another = replace(stream(out), query_id="another")
        with pytest.raises(UnknownQuery, match="onNewQuery=continue"):
            another.run(0, [rows("x")])
        assert visible(out) == before

    def test_or_adds_to_what_is_there(self, out: str) -> None:
        stream(out).run(0, [rows("abc")])
        before = visible(out)
        replace(stream(out, onNewQuery="continue"), query_id="another").run(0, [rows("d")])
        assert before.items() < visible(out).items()
        assert content_of(out) == "abcd"

    def test_files_of_others_stay(self, out: str) -> None:
        Path(out).mkdir()
        Path(out, "file").write_text("foreign")
        stream(out).run(0, [rows("abc")])
        assert visible(out)["file"] == "foreign"


class TestD9:
    """Apex relies on stable file lengths, up-to-date listings, and successful renames."""

    def test_storage_that_cuts_files(self, disk: FileSystem, out: str) -> None:
        class Cutting(WrapperFileSystem, PickledByReference):
            def stat(self, path: str) -> FileInfo:
                if path.endswith(".staged"):
                    Path(out, path).write_bytes(b"a\n")
                return super().stat(path)

        with mounted(Cutting(disk)) as url, pytest.raises(CorruptData, match="expected 6 bytes, found 2 bytes"):
            stream(url).run(0, [rows("abc")])
        assert not records(out)

    def test_storage_whose_listings_are_old(self, disk: FileSystem, out: str) -> None:
        """Many files are accepted as written only if they are listed; committed files are found without listings."""

        class Late(WrapperFileSystem, PickledByReference):
            late = True

            def list(self, path: str) -> list[FileInfo]:
                return [] if self.late else super().list(path)

        with mounted(Late(disk)) as url:
            query = stream(url)
            with pytest.raises(CorruptData, match="found no such file"):
                query.run(0, [rows("a")] * (STATS_MAX + 1))
            assert not records(out)
            query.run(0, [rows("a")] * STATS_MAX)
            query.run(1, [rows("b")])
            query.restart()
            assert query.run(1, [rows("b")]).replayed
            assert committed(url) == "a" * STATS_MAX + "b"
        assert content_of(out) == "a" * STATS_MAX + "b"

    @pytest.mark.parametrize("effect", ["before", "after"])
    def test_a_rename_whose_reply_is_lost(self, disk: FileSystem, out: str, effect: Any) -> None:
        lost = Fault(OutcomeUnknown, effect, operations=frozenset({"rename"}))
        with mounted(FaultyFileSystem(disk, [lost])) as url, repeatable():
            stream(url).run(0, [rows("abc")])
        assert content_of(out) == "abc"

    def test_a_file_at_its_name_that_has_another_length(self, out: str, monkeypatch: pytest.MonkeyPatch) -> None:
        query = stream(out)
        with monkeypatch.context() as patched:
            patched.setattr("ftfile.log.protocol.roll_forward", lambda *_, **__: [])
            query.run(0, [rows("abc")])
        (add,) = query.config().log(current()).refresh().unpublished[0].adds
        assert add.final_path is not None
        Path(out, add.path).unlink()
        Path(out, add.final_path).write_text("a\n")
        query.restart()
        with pytest.raises(NameCollision, match=f"{add.final_path}.*of 6 bytes, but has 2"):
            query.run(0, [rows("abc")])


class TestD10:
    """Records without a file name vanish."""

    @pytest.mark.parametrize("name", [None, ""])
    def test_they_fail_the_batch(self, out: str, name: str | None) -> None:
        query = stream(out)
        with pytest.raises(EncodingError, match="fileNameColumn"):
            query.run(0, [rows("a"), rows("b", name)])
        assert not records(out)

    @pytest.mark.parametrize("policy", ["drop", "deadLetter"])
    def test_or_they_are_counted(self, out: str, policy: str) -> None:
        stream(out, badRecords=policy).run(0, [rows("a"), rows("b", None, "")])
        (version,) = ftfile.open(out).history()
        assert version.bad_records == 2
        letters = [*ftfile.open(out).dead_letters()]
        assert [letter.row["value"] for letter in letters] == ["b"] * (2 if policy == "deadLetter" else 0)
        assert content_of(out) == "a"


@pytest.mark.slow
def test_d11(out: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A foreign file exists at a file's name: Apex deletes its own file."""
    query = stream(out)
    with monkeypatch.context() as patched:
        patched.setattr("ftfile.log.protocol.roll_forward", lambda *_, **__: [])
        query.run(0, [rows("abc")])
    (add,) = query.config().log(current()).refresh().unpublished[0].adds
    assert add.final_path is not None
    foreign = Path(out, add.final_path)
    foreign.write_text("x\ny\nz\n")
    query.restart()
    with pytest.raises(NameCollision, match=f"{add.path}.*{add.final_path}"):
        query.run(0, [rows("abc")])
    assert (foreign.read_text(), Path(out, add.path).read_text()) == ("x\ny\nz\n", "a\nb\nc\n")
    foreign.unlink()
    query.restart()
    assert query.run(0, [rows("abc")]).replayed
    assert content_of(out) == "abc"


@pytest.mark.slow
def test_d12(disk: FileSystem) -> None:
    """Every publication lists the directory, and so costs more with every file in it."""
    counting = FaultyFileSystem(disk)
    calls = []
    with mounted(counting) as url:
        query = stream(url)
        for batch in range(16):
            counting.calls.clear()
            query.run(batch, [rows("x", *[f"deep/{name}" for name in range(5)])])
            listed = [call.path for call in counting.calls if call.operation == "list"]
            # The second batch, the first into an existing directory, checks once for tables of other programs.
            assert batch <= 1 or all(path.startswith("_ftfile/") for path in listed), listed
            assert batch == 0 or "" not in listed
            calls.append(len(counting.calls))
    assert calls[15] <= calls[5]
