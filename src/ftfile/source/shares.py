"""The share of one task in a read: which adds, or shares of them; and batches of the size that Spark takes fastest."""

from __future__ import annotations

import functools
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple, ParamSpec

import pyarrow as pa

from ftfile.arrays.spark_types import arrow_schema
from ftfile.core.packing import packed
from ftfile.encoding.api import Span, Wanted
from ftfile.encoding.partitions.paths import columns_in_path
from ftfile.parts.reader import is_splittable, read_add, recorded_names
from ftfile.source.selection import matching_rows, rows_of_path

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping

    from ftfile.commit.format.model import Add
    from ftfile.encoding.api import RowFilter
    from ftfile.fs.api import FileSystem

TASK_BYTES = 32 << 20
OPEN_COST_BYTES = 1 << 20
_SHARE_BYTES_MIN = 4 << 20  # of a read that is spread over cores
_TASKS_MAX = 100_000  # about as many: of more, each reads more

# What the cache of a core holds: the JVM copies a batch, and then goes over its rows. Larger ones take longer.
_ROWS_MAX = 8_192
_BYTES = 256 << 10  # about as many

_P = ParamSpec("_P")


class Piece(NamedTuple):
    """An add, or a share of its rows."""

    add: Add
    span: Span | None = None


@dataclass(frozen=True, slots=True)
class Share:
    """The pieces that one task reads, in their order."""

    pieces: tuple[Piece, ...]
    encodings: dict[str, Any]  # definitions by key, all that the adds refer to


def pack(
    adds: Iterable[Add], definitions: Mapping[str, Any], task_bytes: int = TASK_BYTES, cores: int = 1
) -> list[Share]:
    """Return the shares of tasks, each of about `task_bytes`, in the order of the adds.

    Opening a file counts like reading 1 MiB of one. Large files whose rows are in groups are read by several tasks.
    Few bytes are shared among as many tasks as `cores`, as far as files allow. No file is opened.
    """
    adds = list(adds)
    whole = sum(add.length + OPEN_COST_BYTES for add in adds)
    limit = max(min(task_bytes, max(_SHARE_BYTES_MIN, -(-whole // cores))), whole // _TASKS_MAX)
    pieces = (piece for add in adds for piece in _pieces(add, definitions, limit))
    return [
        Share(tuple(group), {piece.add.encoding: definitions[piece.add.encoding] for piece in group})
        for group in packed(pieces, _cost, limit + OPEN_COST_BYTES)
    ]


def read_share(
    fs: FileSystem, share: Share, requested: pa.Schema, *, is_old: bool = True, row_filter: RowFilter | None = None
) -> Iterator[pa.RecordBatch]:
    """Yield the rows of adds with the requested columns, found by name, case aside.

    If the adds are not `is_old`, they are live; see `open_add`. The filter is on requested columns, by the same types,
    and spelled as in the files.
    """
    recorded = {key: _as_recorded(encoding, requested) for key, encoding in share.encodings.items()}
    for add, span in share.pieces:
        encoding, schema = share.encodings[add.encoding], recorded[add.encoding]
        in_path = columns_in_path(encoding)
        if in_path.issuperset(schema.names):
            batches = rows_of_path(add, encoding, schema) if span is None or span.number == 0 else iter(())
        else:
            batches = read_add(fs, add, encoding, schema, is_old=is_old, wanted=Wanted(row_filter, span))
        if row_filter is not None and not in_path.issuperset(row_filter.schema.names):  # else all of its rows match
            where = row_filter.where
            batches = (rows for batch in batches for rows in matching_rows(batch, where).to_batches())
        for batch in batches:
            yield batch.rename_columns(requested.names)


def _pieces(add: Add, definitions: Mapping[str, Any], limit: int) -> Iterator[Piece]:
    count = -(-add.length // limit)
    if count <= 1 or not is_splittable(add, definitions[add.encoding]):
        yield Piece(add)
        return
    yield from (Piece(add, Span(number, count)) for number in range(count))


def _cost(piece: Piece) -> int:
    return piece.add.length // (1 if piece.span is None else piece.span.count) + OPEN_COST_BYTES


def _as_recorded(encoding: dict[str, Any], requested: pa.Schema) -> pa.Schema:
    found = [*arrow_schema(encoding["schema"]).names, *columns_in_path(encoding)]
    names = recorded_names(found, requested.names)
    return pa.schema([field.with_name(name) for name, field in zip(names, requested, strict=True)])


def small_batches(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Yield the rows in batches of at most 8,192 rows and about 256 KiB, and of at least one row; nothing is copied."""
    for batch in batches:
        count = max(1, min(_ROWS_MAX, _BYTES * batch.num_rows // max(1, batch.nbytes)))
        for start in range(0, batch.num_rows, count):
            yield batch if count >= batch.num_rows else batch.slice(start, count)


def in_small_batches(read: Callable[_P, Iterable[pa.RecordBatch]]) -> Callable[_P, Iterator[pa.RecordBatch]]:
    """Return a method whose batches come as small ones."""

    @functools.wraps(read)
    def reading(*args: _P.args, **kwargs: _P.kwargs) -> Iterator[pa.RecordBatch]:
        return small_batches(read(*args, **kwargs))

    return reading
