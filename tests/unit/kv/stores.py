"""Stores for tests: queries that write them, and their rows, read without the reader."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pyarrow as pa

from ftfile.core.checksum import matches
from ftfile.filters.chain import Chain
from ftfile.kv.definition import DELETE, StoreDefinition, operations
from ftfile.kv.fold import fold
from ftfile.kv.hashing import by_bucket
from ftfile.kv.key_columns import first_fall
from ftfile.kv.planning.runs import are_apart, open_state, recorded_key_types, run_of
from ftfile.log.commit_log import CommitLog
from ftfile.log.format.layout import storage_identity
from ftfile.log.sealed import keys_of, open_with_keys
from ftfile.rows.spark_types import arrow_schema
from ftfile.storage.registry import normalise
from ftfile.testing.context import current
from ftfile.testing.micro_batch import StoreBatch
from tests.kit.store_check import key_at
from tests.unit.kv.documented_run import Documented

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from ftfile.kv.planning.runs import Run
    from ftfile.log.format.model import Add
    from ftfile.log.state import LogState
    from ftfile.storage.api import FileSystem

__all__ = (
    "FIRST",
    "SECOND",
    "counting",
    "file_system",
    "head_of",
    "query_of",
    "rows",
    "rows_in",
    "rows_of",
    "table_of",
)

FIRST, SECOND = "00000000-0000-0000-0000-000000000001", "00000000-0000-0000-0000-000000000002"
COLUMNS = {"k": "string", "n": "long"}


def query_of(path: str, columns: Mapping[str, Any] | None = None, query_id: str = FIRST, **options: str) -> StoreBatch:
    """A query that writes rows of k and n; the newest n of a k counts."""
    return StoreBatch(path, columns or COLUMNS, {"keyColumns": "k", "buckets": "4"} | options, query_id)


def counting(path: str, query_id: str = FIRST, **options: str) -> StoreBatch:
    """A query that adds up n for each k."""
    return query_of(path, None, query_id, merge="n:sum", **options)


def rows(*keys: str, n: int = 1, **more: Any) -> list[dict[str, Any]]:
    return [{"k": key, "n": n, **more} for key in keys]


def file_system(path: str, ring: str | None = None) -> FileSystem:
    return open_with_keys(normalise(path), current(), ring)


def head_of(path: str, ring: str | None = None) -> LogState:
    """The newest state, metadata open."""
    fs = file_system(path, ring)
    head = CommitLog(fs).refresh()
    return open_state(fs, head, recorded_key_types(head))


def table_of(fs: FileSystem, add: Add) -> pa.Table:
    """All rows of a run, including the rows that a job has taken; its bytes are the recorded bytes."""
    content = fs.read(add.path)[add.offset : add.offset + add.length]
    assert matches(content, add.checksum)
    if add.filters:
        identity = storage_identity("segment", add.path, add.offset)
        content = Chain.for_reading(add.filters, keys_of(fs)).decode(content, identity)
    run = Documented(content)
    return pa.Table.from_pylist(run.rows, schema=arrow_schema(run.schema))


def rows_of(path: str, ring: str | None = None) -> dict[Any, Any]:
    """The values of the newest version by key, single keys and single values without a tuple; runs are checked."""
    return rows_in(file_system(path, ring))


def rows_in(fs: FileSystem) -> dict[Any, Any]:
    """The same, of an opened directory."""
    head = CommitLog(fs).refresh()
    head = open_state(fs, head, recorded_key_types(head))
    assert head.encoding is not None
    definition = StoreDefinition.from_json(head.definitions[head.encoding]["store"])
    buckets: dict[str, list[Run]] = {}
    for add in head.segments.values():
        buckets.setdefault(add.directory_key, []).append(run_of(add))
    found: dict[Any, Any] = {}
    for bucket, runs in buckets.items():
        runs.sort(key=lambda run: run.metadata.at)
        assert all(are_apart(one, other) for one in runs for other in runs if one is not other)
        tables = [_checked(fs, run, definition) for run in runs]
        folded = fold(tables, definition, is_bottommost=True, purges=[run.metadata.purges for run in runs])
        for row in folded.filter(pa.array(operations(folded) != DELETE)).to_pylist():
            key = tuple(row[name] for name in definition.keys)
            values = tuple(row[name] for name in definition.values)
            found[_alone(key)] = _alone(values)
        assert {name for name, _ in by_bucket(folded, definition)} <= {bucket}
    return found


def _checked(fs: FileSystem, run: Run, definition: StoreDefinition) -> pa.Table:
    table = table_of(fs, run.add)
    assert table.num_rows == run.add.rows
    assert {bucket for bucket, _ in by_bucket(table, definition)} <= {run.add.directory_key}
    if table.num_rows:
        batch = table.select(definition.keys).combine_chunks().to_batches()[0]
        assert first_fall(batch.columns) is None
        assert run.metadata.keys == (key_at(table, 0, definition.keys), key_at(table, -1, definition.keys))
    return table


def _alone(values: Iterable[Any]) -> Any:
    values = tuple(values)
    return values[0] if len(values) == 1 else values
