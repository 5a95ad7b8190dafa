"""After an operation that wrote a record, existing exports contain its rows. An export never fails the operation."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

import ftfile
from ftfile.core.arguments import Access
from ftfile.core.errors import CorruptData, PermissionDenied
from ftfile.log.format.model import Body
from ftfile.log.protocol import commit
from ftfile.operate.export.after_commit import operating
from ftfile.storage.registry import WrapperFileSystem
from ftfile.testing.context import current, open_filesystem
from ftfile.testing.fs.crashing import CrashingFileSystem
from ftfile.testing.fs.memory import mounted
from ftfile.testing.micro_batch import MicroBatch
from tests.kit.parameters import parametrize
from tests.unit.operate.export.formats import COLUMNS, MOUNTED, check_newest, count_commits, export, forget_follow_up
from tests.unit.operate.export.test_engines import deltalake, duckdb_delta, duckdb_iceberg, pyiceberg

if TYPE_CHECKING:
    from collections.abc import Callable

    from ftfile.storage.api import FileInfo

FORMATS = ("delta", "iceberg")
READERS = (deltalake, duckdb_delta, pyiceberg, duckdb_iceberg)
OPEN = {"maxBatchesPerFile": "100"}


@pytest.fixture
def out(tmp_path: Path) -> str:
    return str(tmp_path / "out")


def rows(*ids: int) -> list[dict[str, Any]]:
    return [{"id": number, "word": "ab"[number % 2]} for number in ids]


def written(url: str, options: dict[str, str] | None = None) -> MicroBatch:
    """Write two batches, and export after each of them."""
    query = MicroBatch(url, COLUMNS, {"partitionBy": "word", **(options or {})})
    for batch, ids in enumerate([(0, 1, 2, 3), (4, 5)]):
        query.run(batch, [rows(*ids)])
        for to in FORMATS:
            export(url, to)
    return query


def give_up(url: str) -> Any:
    lost = min(file.path for file in ftfile.open(url).files() if "word=b" in file.path)
    Path(url, lost).unlink()
    return ftfile.repair(url, dry_run=False, give_up=[lost], context=current())


# Options of the writer, the operation, and the remaining ids after the operation.
OPERATIONS: dict[str, tuple[dict[str, str], Callable[[str], Any], list[int]]] = {
    "compact": ({}, lambda url: ftfile.compact(url, context=current()), [0, 1, 2, 3, 4, 5]),
    "drop": ({}, lambda url: ftfile.drop(url, {"word": "a"}, context=current()), [1, 3, 5]),
    "delete": ({}, lambda url: ftfile.delete(url, "id = 3", context=current()), [0, 1, 2, 4, 5]),
    "flush": (OPEN, lambda url: ftfile.flush(url, context=current()), [0, 1, 2, 3, 4, 5]),
    "restore": ({}, lambda url: ftfile.restore(url, 0, context=current()), [0, 1, 2, 3]),
    "undo": ({}, lambda url: ftfile.undo(url, dry_run=False, context=current()), [0, 1, 2, 3]),
    "repair": ({}, give_up, [0, 2, 4, 5]),
}


@pytest.mark.slow
@pytest.mark.parametrize("read", READERS)
@pytest.mark.parametrize("name", OPERATIONS)
def test_other_programs_read_the_newest_version(
    name: str, read: Callable[[str, int], list[dict[str, Any]]], out: str
) -> None:
    options, operate, ids = OPERATIONS[name]
    written(out, options)
    operate(out)
    assert sorted(read(out, 2), key=lambda row: row["id"]) == rows(*ids)
    assert [count_commits(open_filesystem(out), to) for to in FORMATS] == [3, 3]


@pytest.mark.slow
@pytest.mark.packages
@pytest.mark.parametrize("name", OPERATIONS)
def test_what_changes_nothing_renews_nothing(name: str, out: str) -> None:
    """A dry run renews no export either, even if a writer has committed a version that is not exported."""
    options, operate, _ = OPERATIONS[name]
    query = written(out, options)
    operate(out)
    forget_follow_up(out)
    query.run(2, [rows(6)])
    before = _metadata(out)
    for call, arguments in (
        (ftfile.compact, {}), (ftfile.drop, {"where": "word = 'a'"}), (ftfile.delete, {"where": "id = 2"}),
        (ftfile.flush, {}), (ftfile.restore, {"version": 0}), (ftfile.undo, {}),
        (ftfile.repair, {}),
    ):  # fmt: skip
        call(out, dry_run=True, context=current(), **arguments)
    ftfile.restore(out, 3, context=current())  # this version is the newest version
    ftfile.repair(out, dry_run=False, context=current())
    assert _metadata(out) == before


@pytest.mark.slow
@pytest.mark.packages
def test_versions_of_others_renew_nothing(out: str) -> None:
    query = written(out)
    before = _metadata(out)
    with operating("compact", out, Access(context=current())):
        query.run(2, [rows(6)])
    assert _metadata(out) == before


@parametrize("name", OPERATIONS, quick=2, packages=True)
def test_a_directory_without_exports_gets_none(name: str, out: str) -> None:
    options, operate, _ = OPERATIONS[name]
    query = MicroBatch(out, COLUMNS, {"partitionBy": "word", **options})
    for batch in range(2):
        query.run(batch, [rows(2 * batch, 2 * batch + 1)])
    operate(out)
    assert ftfile.open(out).version() == 2
    assert not _metadata(out)


@pytest.mark.slow
@pytest.mark.packages
def test_one_format_alone_is_renewed(out: str) -> None:
    query = MicroBatch(out, COLUMNS)
    query.run(0, [rows(0)])
    export(out, "iceberg")
    query.run(1, [rows(1)])
    ftfile.compact(out, context=current())
    check_newest(out, "iceberg")
    assert not Path(out, "_delta_log").exists()


@pytest.mark.slow
@pytest.mark.packages
def test_an_operation_that_fails_in_part_renews_as_well(out: str) -> None:
    """The exports contain all rows that the operation recorded."""
    written(out)
    damaged = min(Path(out, "word=a").iterdir())
    damaged.write_bytes(damaged.read_bytes()[:-9] + b"x" * 9)
    with pytest.raises(CorruptData, match=damaged.name):
        ftfile.compact(out, context=current())
    assert ftfile.open(out).version() == 2
    table = pytest.importorskip("deltalake").DeltaTable(out, version=2)
    assert sorted(table.to_pyarrow_table(filters=[("word", "=", "b")])["id"].to_pylist()) == [1, 3, 5]
    assert [count_commits(open_filesystem(out), to) for to in FORMATS] == [3, 3]


class _Refusing(WrapperFileSystem):
    """Fails a commit of each format, and the creation of every other file in a directory of rows."""

    def create_exclusive(self, path: str, content: bytes) -> None:
        if path.startswith(("_delta_log", "_iceberg")):
            raise PermissionDenied("create_exclusive", path, "it is read-only")
        super().create_exclusive(path, content)


@pytest.mark.slow
@pytest.mark.packages
def test_a_failing_renewal_is_a_warning(caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ftfile.operate.export.export.normalise", lambda _: MOUNTED)
    inner, other = CrashingFileSystem(), CrashingFileSystem()
    with mounted(other) as url:
        _two_batches(url)
        expected = ftfile.compact(url, context=current())
    with mounted(inner) as url:
        _two_batches(url)
        for to in FORMATS:
            export(url, to)
    with mounted(_Refusing(inner)) as url:
        report = ftfile.compact(url, context=current())
    assert report == expected
    warnings = [record.getMessage() for record in caplog.records if record.levelname == "WARNING"]
    for to in FORMATS:
        (warning,) = (text for text in warnings if f"`ftfile export {url} --to {to}` tries again" in text)
        assert "it is read-only" in warning


def _two_batches(url: str) -> None:
    query = MicroBatch(url, COLUMNS)
    for batch in range(2):
        query.run(batch, [rows(batch)])


def test_a_table_of_another_program_is_a_warning(out: str, caplog: pytest.LogCaptureFixture) -> None:
    _two_batches(out)
    Path(out, "_delta_log").mkdir()
    foreign = Path(out, "_delta_log", f"{0:020}.json")
    foreign.write_text('{"commitInfo":{"operation":"WRITE"}}\n')
    assert ftfile.compact(out, context=current()).files_written == 1
    assert "another program wrote to this table" in caplog.text
    assert foreign.read_text() == '{"commitInfo":{"operation":"WRITE"}}\n'
    assert [*foreign.parent.iterdir()] == [foreign]


@parametrize("error", [ValueError, PermissionDenied], quick=1, packages=True)
def test_an_interrupted_operation(error: type[Exception], out: str) -> None:
    """The recorded version is exported, unless the storage is unavailable: the export would wait for it again."""
    written(out)

    def operate() -> None:
        with operating("compact", out, Access(context=current())) as (log, author):
            commit(log, author, lambda *_: Body(metrics={"x": 1}))
            raise error("x", "y", "z")

    with pytest.raises(error):
        operate()
    assert count_commits(open_filesystem(out), "delta") == (3 if error is ValueError else 2)


def test_storage_that_fails_as_exports_are_looked_for(caplog: pytest.LogCaptureFixture) -> None:
    class Hidden(WrapperFileSystem):
        def stat(self, path: str) -> FileInfo:
            if path == "_iceberg":
                raise PermissionDenied("stat", path, "not now")
            return super().stat(path)

    with mounted(Hidden(CrashingFileSystem())) as url:
        _two_batches(url)
        assert ftfile.compact(url, context=current()).files_written == 1
    assert "it is unknown whether exports exist" in caplog.text


def _metadata(url: str) -> Counter[str]:
    """Return the paths and contents of all metadata of exports."""
    below = [path for name in ("_delta_log", "_iceberg") for path in Path(url, name).rglob("*") if path.is_file()]
    return Counter(f"{path}: {path.read_bytes()!r}" for path in below)
