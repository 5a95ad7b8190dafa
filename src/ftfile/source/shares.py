"""The share of one task in a read: which adds, and how they are decoded."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from ftfile.arrays.spark_types import arrow_schema
from ftfile.core.packing import packed
from ftfile.encoding.partitions.paths import columns_in_path
from ftfile.parts.reader import read_add, recorded_names

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from ftfile.commit.format.model import Add
    from ftfile.fs.api import FileSystem

__all__ = ("OPEN_COST_BYTES", "TASK_BYTES", "Share", "pack", "read_share")

TASK_BYTES = 32 << 20
OPEN_COST_BYTES = 1 << 20


@dataclass(frozen=True, slots=True)
class Share:
    """Adds that one task reads."""

    adds: tuple[Add, ...]
    encodings: dict[str, Any]  # definitions by key, all that the adds refer to


def pack(adds: Iterable[Add]) -> list[tuple[Add, ...]]:
    """Group adds, in their order, so that a task reads about 32 MiB; opening a file counts like reading one."""
    return [tuple(group) for group in packed(adds, lambda add: add.length + OPEN_COST_BYTES, TASK_BYTES)]


def read_share(fs: FileSystem, share: Share, requested: pa.Schema) -> Iterator[pa.RecordBatch]:
    """Yield the rows of adds that may be removed meanwhile, with the requested columns, found by name, case aside."""
    recorded = {key: _as_recorded(encoding, requested) for key, encoding in share.encodings.items()}
    for add in share.adds:
        for batch in read_add(fs, add, share.encodings[add.encoding], recorded[add.encoding], is_old=True):
            yield batch.rename_columns(requested.names)


def _as_recorded(encoding: dict[str, Any], requested: pa.Schema) -> pa.Schema:
    found = [*arrow_schema(encoding["schema"]).names, *columns_in_path(encoding)]
    names = recorded_names(found, requested.names)
    return pa.schema([field.with_name(name) for name, field in zip(names, requested, strict=True)])
