"""The shares of tasks: small files are read together, and the row groups of large files are divided."""

from __future__ import annotations

import pickle
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from msgspec import structs

import ftfile
from ftfile.core.context import SYSTEM
from ftfile.core.errors import ConfigError, CorruptData
from ftfile.core.tasks import OPEN_COST_BYTES
from ftfile.formats.api import Span
from ftfile.formats.parquet_files import check_library
from ftfile.log.sealed import open_with_keys
from ftfile.read import shares
from ftfile.read.shares import Share, pack, read_share
from ftfile.rows.spark_types import arrow_schema
from ftfile.testing.micro_batch import MicroBatch, spark_schema
from tests.kit.parameters import parametrize
from tests.unit.writing.files.encrypted import ring

if TYPE_CHECKING:
    from ftfile.log.read.snapshot import Snapshot

__all__ = ("ring",)

ROWS = 95
GROUPS = 10  # in each file
COLUMNS = {"id": "long", "word": "string"}


@pytest.fixture
def out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """Return the path of a directory whose files have ten row groups."""
    monkeypatch.setattr("ftfile.formats.columnar.CollectingEncoder.group_rows_max", GROUPS)
    return str(tmp_path / "out")


def written(out: str, **options: str) -> Snapshot:
    """Write one file. Skip the test if this pyarrow cannot write it."""
    if options.get("encryption") == "parquet":
        try:
            check_library()
        except ConfigError as error:
            pytest.skip(str(error))
    rows = [{"id": number, "word": f"{number}" * 100} for number in range(ROWS)]
    MicroBatch(out, COLUMNS, options).run(0, [rows])
    return ftfile.open(out, key_provider=options.get("keyProvider")).snapshot()


def shared(snapshot: Snapshot, tasks: int) -> list[Share]:
    """Return shares for about this number of tasks."""
    (add,) = snapshot.adds.values()
    return pack([add], snapshot.definitions, -(-add.length // tasks))


def ids(out: str, share: Share, provider: str | None = None) -> list[int]:
    fs = open_with_keys(out, SYSTEM, provider, ())
    schema = arrow_schema(spark_schema({"ID": "long"}))
    return [row["ID"] for batch in read_share(fs, share, schema) for row in batch.to_pylist()]


@pytest.mark.parametrize("groups", [0, 1, 7, 100])
@pytest.mark.parametrize("count", [1, 2, 3, 99])
def test_spans_have_each_group_once(groups: int, count: int) -> None:
    chosen = [group for number in range(count) for group in Span(number, count).chosen(groups)]
    assert chosen == [*range(groups)]


@pytest.mark.parametrize("tasks", [2, 7, 30])
@parametrize(
    "options",
    [
        {"fileFormat": "parquet"},
        {"fileFormat": "parquet", "compression": "none", "encryption": "parquet"},
        {"fileFormat": "parquet", "encryption": "aes-gcm"},
        {"fileFormat": "orc"},
        {"fileFormat": "orc", "compression": "none", "encryption": "aes-gcm"},
    ],
    ids=str,
    quick=1,
)
def test_groups_of_a_large_file_are_shared_among_tasks(
    out: str, ring: Path, options: dict[str, str], tasks: int
) -> None:
    provider = f"file:{ring}" if "encryption" in options else None
    snapshot = written(out, **options, **({"keyProvider": provider} if provider else {}))
    found = [ids(out, share, provider) for share in pickle.loads(pickle.dumps(shared(snapshot, tasks)))]
    assert len(found) in {tasks - 1, tasks}  # the length of a share is rounded
    assert [*chain(*found)] == [*range(ROWS)]
    assert max(map(len, found)) < ROWS


@pytest.mark.parametrize(
    "options",
    [{"fileFormat": "json"}, {"fileFormat": "avro"}, {"fileFormat": "json", "compression": "gzip"}],
    ids=str,
)
def test_other_formats_are_read_by_one(out: str, options: dict[str, str]) -> None:
    (share,) = shared(written(out, **options), 7)
    assert ids(out, share) == [*range(ROWS)]


def test_small_files_are_read_together_and_of_many_more_by_each_task(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    snapshot = written(str(tmp_path / "out"), fileFormat="json")
    (add,) = snapshot.adds.values()
    adds = [structs.replace(add, id=f"{number}", length=OPEN_COST_BYTES) for number in range(64)]
    assert [len(share.ranges) for share in pack(adds, snapshot.definitions)] == [16] * 4
    assert [len(share.ranges) for share in pack(adds, snapshot.definitions, cores=2)] == [16] * 4
    assert [len(share.ranges) for share in pack(adds, snapshot.definitions, cores=8)] == [8] * 8
    assert [len(share.ranges) for share in pack(adds, snapshot.definitions, cores=64)] == [2] * 32
    assert [len(share.ranges) for share in pack(adds[:1], snapshot.definitions, cores=64)] == [1]
    monkeypatch.setattr(shares, "_TASKS_MAX", 2)
    assert [len(share.ranges) for share in pack(adds, snapshot.definitions)] == [32] * 2


@pytest.mark.parametrize("kind", ["parquet", "orc"])
def test_rows_that_others_read_are_counted(out: str, kind: str) -> None:
    snapshot = written(out, fileFormat=kind)
    (add,) = snapshot.adds.values()
    for share in pack([structs.replace(add, rows=ROWS + 1)], snapshot.definitions, -(-add.length // 3)):
        with pytest.raises(CorruptData, match=f"expected {ROWS + 1} rows, found {ROWS} rows"):
            ids(out, share)


@pytest.mark.parametrize("kind", ["parquet", "orc"])
def test_damage_in_a_share_is_an_error(out: str, kind: str, tmp_path: Path) -> None:
    snapshot = written(out, fileFormat=kind, compression="none")
    (part,) = (tmp_path / "out").glob("part-*")
    content = bytearray(part.read_bytes())
    content[: len(content) // 4] = bytes(len(content) // 4)
    part.write_bytes(content)
    first, *_, last = shared(snapshot, 5)
    with pytest.raises(CorruptData, match=part.name):
        ids(out, first)
    assert ids(out, last)[-1] == ROWS - 1
    part.write_bytes(content[:-10])
    with pytest.raises(CorruptData, match=part.name):
        ids(out, last)


@pytest.mark.slow
@pytest.mark.parametrize("task_bytes", ["32MiB", "1000"])
def test_columns_of_paths_alone_come_from_the_log(out: str, tmp_path: Path, task_bytes: str) -> None:
    struct = pytest.importorskip("pyspark.sql.types").StructType
    from ftfile.spark.datasource import FtFileDataSource

    rows = [{"id": number, "word": "x" * 90, "K": number % 2} for number in range(ROWS)]
    MicroBatch(out, {**COLUMNS, "K": "integer"}, {"partitionBy": "K"}).run(0, [rows])
    for part in (tmp_path / "out").glob("K=*/*"):
        part.unlink()
    source = FtFileDataSource({"path": out, "maxPartitionBytes": task_bytes})
    reader: Any = source.reader(struct().add("k", "long"))
    found = [row["k"] for part in reader.partitions() for batch in reader.read(part) for row in batch.to_pylist()]
    assert sorted(found) == sorted(number % 2 for number in range(ROWS))
    reader = source.reader(struct().add("id", "long"))
    with pytest.raises(CorruptData, match="neither staged nor published"):
        [*reader.read(reader.partitions()[0])]


def test_the_reader_takes_the_size_of_a_task(out: str) -> None:
    pytest.importorskip("pyspark")
    from ftfile.spark.datasource import FtFileDataSource
    from tests.unit.spark.pickled import pickled

    snapshot = written(out, fileFormat="parquet")
    (add,) = snapshot.adds.values()
    source = FtFileDataSource({"path": out, "maxPartitionBytes": str(add.length // 2 + 1)})
    reader: Any = source.reader(source.schema())
    again = pickle.loads(pickled(reader))
    found = [[row["id"] for batch in again.read(part) for row in batch.to_pylist()] for part in reader.partitions()]
    assert [len(rows) for rows in found] == [50, 45]
    assert [*chain(*found)] == [*range(ROWS)]


@pytest.mark.slow
@pytest.mark.parametrize("tasks", [1, 7])
def test_no_file_is_opened_for_columns_of_its_path_alone(out: str, tasks: int) -> None:
    snapshot = written(out, fileFormat="parquet", partitionBy="word")
    adds = [*snapshot.adds.values()]
    for add in adds:
        (Path(out) / str(add.final_path)).unlink()
    found = pack(adds, snapshot.definitions, -(-max(add.length for add in adds) // tasks))
    fs, schema = open_with_keys(out, SYSTEM, None, ()), arrow_schema(spark_schema({"WORD": "string"}))
    words = [row["WORD"] for share in found for batch in read_share(fs, share, schema) for row in batch.to_pylist()]
    assert sorted(words) == sorted(f"{number}" * 100 for number in range(ROWS))
