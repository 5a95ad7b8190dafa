"""Statistics, tables, plans and keys of any type in records with right checksums: CorruptData, or a usable result."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from msgspec import structs

from ftfile.core.errors import CorruptData
from ftfile.core.per_process import PerProcess
from ftfile.kv.planning import runs
from ftfile.kv.planning.runs import RunMetadata, open_metadata
from ftfile.log.apply import Fold
from ftfile.log.directory import store_of
from ftfile.log.format.model import Add, MaintenanceAuthor, Origin, Record
from ftfile.log.format.record import check_definitions, check_entry
from ftfile.log.state import Definitions, LogState
from ftfile.source.plan import FileEntry, Late, Range, Refused, SourcePlan
from ftfile.testing.fs.memory import MemoryFileSystem
from ftfile.writing.files.rolling_groups import GroupTotals, stats_of

if TYPE_CHECKING:
    from collections.abc import Sequence

SEGMENT = Add("id", "segment", "spool", None, 4, 4, "crc32:0", 1, "", "key", Origin("query", 0, 0))
STATS = {
    "partition": 0,
    "index": 1,
    "committedMs": 5,
    "eventTimeUs": [-2, 3],
    "windowUs": [-4, 6],
    "endsPart": True,
}
NO_STATS: list[Any] = [None, "1", 1.5, -1, 1 << 63, [], [1], [1, "2"], [1, 1 << 63], {}]
NO_PLANS: list[Any] = [None, "x", 1.5, True, 1 << 63, {}, [1], [[]], [["a", None]], [[None] * 10], [["a"] * 12]]
KINDS = [pa.string(), pa.int32(), pa.bool_(), pa.decimal128(3, 1)]
KEY = (b"a", -1, 1, 999)
# Keys and prefixes of keys that columns of these types cannot have.
KEYS: list[tuple[Any, ...]] = [
    (1,),
    (b"a", b"b"),
    (b"a", 1 << 31),
    (b"a", 0, 2),
    (b"a", 0, 0, 1000),
    (*KEY, 1),
]
# By the table of the log.
ENTRIES: dict[str, tuple[Any, list[Any]]] = {
    "checkpoints": ("file:///a", [None, 1, ["a"]]),
    "columns": (["a", 1, "crc32:0"], [None, "a", [], ["a", 1], ["a", "1", "b"], ["a", -1, "b"], ["a", 1 << 63, "b"]]),
    "operators": ([1, 1, "id"], [1, [], [1, 1], [1, 1, 1], [True, 1, "id"], [1, 1, "id", 1]]),
    "partNumbers": (7, [None, "7", -1, 1.5, True]),
    "restores": (7, [None, "7", [7]]),
    "unmarkedDirectories": (None, [1, ""]),
    "unreportedFlushes": ("query", [None, 1]),
    "unreportedBatches": ("application", [None, 1]),
}
PLAN = SourcePlan(
    (Range("a", 0, 1, "0" * 16, "", 5, -5, None),),
    (FileEntry("b", "moved", 1, "0" * 16, "", -1, 5, "inode", ("0" * 32,), advances="1" * 32),),
    (Late("c", 1),),
    (Refused("d", "denied"),),
    1,
    "file:///in",
    9,
).to_json()


def test_what_was_written_is_read() -> None:
    assert GroupTotals("").plus(structs.replace(SEGMENT, rolling_stats=STATS), is_other_batch=True).event_min_us == -2
    assert SourcePlan.from_json(PLAN).to_json() == PLAN
    metadata = RunMetadata((1, 1), (KEY, KEY), ((KEY[:2], None),))
    run = structs.replace(SEGMENT, rolling_stats=metadata.to_json())
    assert open_metadata(MemoryFileSystem("forged-stats"), [run], KINDS) == [run]


@pytest.mark.parametrize("field", STATS)
def test_statistics_of_other_types_are_damage(field: str) -> None:
    for value in NO_STATS:
        with pytest.raises(CorruptData, match="a file that stays open"):
            stats_of(structs.replace(SEGMENT, rolling_stats=STATS | {field: value}))


@pytest.mark.parametrize("field", ["partition", "index", "committedMs"])
def test_so_are_statistics_without_them(field: str) -> None:
    with pytest.raises(CorruptData):
        stats_of(
            structs.replace(SEGMENT, rolling_stats={name: value for name, value in STATS.items() if name != field})
        )


def test_a_segment_without_rows_has_no_bytes() -> None:
    segment = structs.replace(SEGMENT, rows=0, rolling_stats=STATS)
    assert GroupTotals("").plus(segment, is_other_batch=True).size_bytes == 0


def test_a_run_has_no_rows_that_do_not_count() -> None:
    run = structs.replace(SEGMENT, skip_rows=1, rolling_stats=RunMetadata((1, 1), (KEY, KEY)).to_json())
    with pytest.raises(CorruptData, match="a run without skipped rows"):
        open_metadata(MemoryFileSystem("forged-stats"), [run], KINDS)


@pytest.mark.parametrize("key", KEYS)
def test_keys_that_the_columns_cannot_have_are_damage(key: tuple[Any, ...]) -> None:
    fs = MemoryFileSystem("forged-stats")
    for metadata in (
        RunMetadata((1, 1), (key, KEY)),
        RunMetadata((1, 1), None, ((KEY, key),)),
        RunMetadata((1, 1), None, ((key, None),)),
    ):
        with pytest.raises(CorruptData, match="key columns"):
            open_metadata(fs, [structs.replace(SEGMENT, rolling_stats=metadata.to_json())], KINDS)


@pytest.mark.parametrize("table", ENTRIES)
def test_entries_of_other_types_are_damage(table: str) -> None:
    written, others = ENTRIES[table]
    check_entry(table, "1", written)
    for value in others:
        with pytest.raises((ValueError, KeyError)):
            check_entry(table, "1", value)


@pytest.mark.parametrize("table", ["columns", "unreportedFlushes", "unreportedBatches"])
def test_so_are_keys_that_are_no_versions(table: str) -> None:
    for key in ("", "x", "-1", "1.5", "1" * 20, "\u0661"):
        with pytest.raises(ValueError, match="has the key"):
            check_entry(table, key, ENTRIES[table][0])


def test_metadata_is_checked_once_for_the_same_run_and_types(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(runs, "_checked", PerProcess(dict))
    monkeypatch.setattr(runs, "_KEPT", 2)
    checks, honest = [], RunMetadata.check_keys

    def check_keys(of_run: RunMetadata, kinds: Sequence[pa.DataType]) -> None:
        checks.append(of_run)
        honest(of_run, kinds)

    monkeypatch.setattr(RunMetadata, "check_keys", check_keys)
    fs, metadata = MemoryFileSystem("forged-stats"), RunMetadata((0, 1), ((b"a",), (b"b",)), (), 1, 5).to_json()
    adds = [structs.replace(SEGMENT, id=f"run {number}", rolling_stats=dict(metadata)) for number in range(2)]
    for kinds, expected in (([pa.string()], 2), ([pa.string()], 2), ([pa.binary()], 4)):
        open_metadata(fs, adds, kinds)
        assert len(checks) == expected
    with pytest.raises(CorruptData, match="its column is int32"):
        open_metadata(fs, adds, [pa.int32()])
    open_metadata(fs, [structs.replace(adds[0], id="run 2")], [pa.binary()])
    assert len(runs._checked.here) == 1  # noqa: SLF001


@pytest.mark.parametrize("field", PLAN)
def test_plans_of_other_types_are_none(field: str) -> None:
    for value in NO_PLANS:
        if field == "root" and value == "x":
            continue
        with pytest.raises((ValueError, TypeError, LookupError)):
            SourcePlan.from_json(PLAN | {field: value})


@pytest.mark.parametrize("definitions", [{}, {"key": "a schema"}])
def test_an_encoding_that_no_record_defines_is_damage(definitions: dict[str, Any]) -> None:
    with pytest.raises(CorruptData, match=r"the encoding of new rows|a definition with the key 'key'"):
        store_of(LogState(encoding="key", definitions=Definitions(definitions)))


def test_so_is_a_schema_that_no_record_defines() -> None:
    fold = Fold(LogState())
    fold.apply(Record(0, "nonce", MaintenanceAuthor("vacuum", "job"), 0, schema="key"))
    with pytest.raises(CorruptData, match="a definition with the key 'key'"):
        fold.finish().definitions["key"]


@pytest.mark.parametrize(
    "definition",
    [
        1,
        None,
        ["json"],
        {"partitionBy": [["kind"]]},
        {"partitionBy": "kind"},
        {"format": "json"},
        {"format": {"name": 1}},
        {"schema": {}},
        {"filters": "gzip"},
        {"store": []},
    ],
)
def test_definitions_have_the_types_that_are_written(definition: object) -> None:
    with pytest.raises(ValueError, match=r"is |are "):
        check_definitions({"key": definition})
