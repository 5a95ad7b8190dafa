"""`durability`: it takes effect, is checked at the start, and is recorded as applied."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

import ftfile
import ftfile.kv
from ftfile.core.errors import ConfigError
from ftfile.storage.registry import WrapperFileSystem, WrapperStream
from ftfile.testing.context import current
from ftfile.testing.fs.crashing import CrashingFileSystem
from ftfile.testing.fs.memory import mounted
from ftfile.testing.fs.pickled_by_reference import PickledByReference
from ftfile.testing.micro_batch import MicroBatch, StoreBatch, spark_schema
from ftfile.writing.batch import plan_write
from ftfile.writing.files.file_options import SinkConfig
from ftfile.writing.files.file_writer import FileSink
from tests.kit.parameters import parametrize

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from ftfile.storage.api import FileSystem, OutputStream
    from ftfile.testing.fs.volume import Storage

COLUMNS = {"id": "long", "word": "string"}
ROWS = [[{"id": 1, "word": "a"}, {"id": 2, "word": "b"}], [{"id": 3, "word": "a"}]]


class Syncs(WrapperFileSystem, PickledByReference):
    """Remembers which files were written by streams, and which of these were synced."""

    def __init__(self, inner: FileSystem) -> None:
        super().__init__(inner)
        self.closed: set[str] = set()
        self.synced: set[str] = set()

    def around(self, operation: str, path: str, call: Callable[[], Any]) -> Any:
        if operation in {"hsync", "close"}:
            (self.synced if operation == "hsync" else self.closed).add(path)
        return call()

    def create(self, path: str) -> OutputStream:
        return WrapperStream(super().create(path), self)


def storage(kind: Storage = "disk") -> Syncs:
    return Syncs(CrashingFileSystem(storage=kind))


KINDS = {
    "parts": {"fileFormat": "parquet", "partitionBy": "word"},
    "spools": {"fileFormat": "json", "rolling": "policy"},
    "dead letters": {"fileFormat": "json", "badRecords": "deadLetter", "maxRecordBytes": "5"},
    "runs": {"keyColumns": "id"},
}


@parametrize("kind", KINDS, quick=1)
@pytest.mark.parametrize("asked", ["auto", "hsync", "close"])
def test_it_decides_whether_files_are_synced(kind: str, asked: str) -> None:
    fs = storage()
    query, open_directory = (StoreBatch, ftfile.kv.open) if kind == "runs" else (MicroBatch, ftfile.open)
    with mounted(fs) as url:
        query(url, COLUMNS, {**KINDS[kind], "durability": asked}).run(0, ROWS)
        [version] = open_directory(url).history()
    assert fs.closed
    assert fs.synced == (set() if asked == "close" else fs.closed)
    assert version.durability == ("close" if asked == "close" else "hsync")


def test_without_the_option_everything_is_synced() -> None:
    fs = storage()
    with mounted(fs) as url:
        MicroBatch(url, COLUMNS, {"fileFormat": "json"}).run_batch_write("job", ROWS)
        assert [version.durability for version in ftfile.open(url).history()] == ["hsync"]
    assert fs.synced == fs.closed


@pytest.mark.parametrize("asked", ["hsync", "close"])
def test_files_that_stayed_open_are_finished_as_their_query_asked(asked: str) -> None:
    fs = storage()
    with mounted(fs) as url:
        query = MicroBatch(url, COLUMNS, {"fileFormat": "json", "rolling": "policy", "durability": asked})
        query.run(0, ROWS)
        query.run(1, ROWS)
        fs.closed.clear()
        fs.synced.clear()
        ftfile.flush(url)
        assert [version.durability for version in ftfile.open(url).history()] == [asked] * 3
    assert fs.closed
    assert fs.synced == (fs.closed if asked == "hsync" else set())


def test_maintenance_does_the_most_and_says_so() -> None:
    fs = storage()
    with mounted(fs) as url:
        query = MicroBatch(url, COLUMNS, {"fileFormat": "json", "durability": "close"})
        query.run(0, ROWS)
        ftfile.compact(url)
        ftfile.drop(url, "all")
        assert [version.durability for version in ftfile.open(url).history()] == ["close", "hsync", None]
    assert len(fs.synced) == 1


def test_auto_takes_what_storage_without_syncs_has() -> None:
    fs = storage("webhdfs")
    with mounted(fs) as url:
        for batch, asked in enumerate(("auto", "close")):
            MicroBatch(url, COLUMNS, {"fileFormat": "json", "durability": asked}).run(batch, ROWS)
        assert [version.durability for version in ftfile.open(url).history()] == ["close"] * 2
    assert fs.synced == set()


@pytest.fixture
def closing_url() -> Iterator[str]:
    with mounted(storage("webhdfs")) as url:
        yield url


@pytest.mark.parametrize(
    ("path", "asked", "reason"),
    [
        (
            "closing",
            "hsync",
            "durability=hsync: the file system 'crashing' makes files durable only when they are closed",
        ),
        ("memory://x/y", "hsync", "durability=hsync: the file system 'memory' keeps no file after the process ends"),
        ("memory://x/y", "close", "durability=close: the file system 'memory' keeps no file after the process ends"),
        ("/x", "always", "durability='always' is not understood"),
    ],
)
def test_more_than_the_storage_has_is_an_error_at_the_start(
    path: str, asked: str, reason: str, closing_url: str
) -> None:
    options = {"path": closing_url if path == "closing" else path, "fileFormat": "json", "durability": asked}
    with pytest.raises(ConfigError, match=reason):
        plan_write(FileSink(), SinkConfig.from_options(options, spark_schema(COLUMNS)), current())
