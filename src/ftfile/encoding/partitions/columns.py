"""The columns of a file that are in its path."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pyarrow as pa

from ftfile.encoding.partitions.paths import parse_bucket_path

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ("bucket_values", "columns_in_path", "with_path_columns")


def columns_in_path(encoding: Mapping[str, Any]) -> frozenset[str]:
    """Return the columns that files of an encoding, by its definition in the log, do not have."""
    file_name = encoding.get("fileName")
    return frozenset([*encoding["partitionBy"], *([file_name["column"]] if file_name else [])])


def bucket_values(encoding: Mapping[str, Any], directory: str, stem: str, schema: pa.Schema) -> dict[str, pa.Scalar]:
    """Return the values of those columns of `schema` that are in the path of a bucket, typed as there.

    Args:
        encoding: its definition in the log.
        directory: of the bucket.
        stem: the start of its file names, where a column chooses them.
        schema: of the rows, or some columns of it.
    """
    partition = pa.schema([field for field in schema if field.name in encoding["partitionBy"]])
    values = parse_bucket_path(directory, partition, encoding["timeZone"]) if len(partition) else {}
    file_name = encoding.get("fileName")
    if file_name and file_name["column"] in schema.names:
        below = directory.split("/")[file_name["directoriesAbove"] :] if directory else []
        values[file_name["column"]] = pa.scalar("/".join([*below, stem]), schema.field(file_name["column"]).type)
    return values


def with_path_columns(batch: pa.RecordBatch, values: Mapping[str, pa.Scalar], schema: pa.Schema) -> pa.RecordBatch:
    """Return rows of a file with the columns that are in its path, in the order of `schema`."""
    columns = [
        pa.repeat(values[field.name], batch.num_rows) if field.name in values else batch.column(field.name)
        for field in schema
    ]
    return pa.RecordBatch.from_arrays(columns, schema=schema)
