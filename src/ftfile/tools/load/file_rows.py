"""The rows of several files as one stream of batches with the same columns."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import pyarrow as pa

from ftfile.core.progress import Tracker
from ftfile.operate.writers.arrow_rows import arrow_rows as stored_rows
from ftfile.operate.writers.pandas_index import columns_without_labels
from ftfile.operate.writers.untyped_columns import has_untyped, with_types_of
from ftfile.rows.spark_types import arrow_schema, as_nullable, spark_schema_json
from ftfile.tools.load.columnar_files import arrow_rows, avro_rows, orc_rows, parquet_rows
from ftfile.tools.load.csv_files import csv_rows
from ftfile.tools.load.json_files import json_rows
from ftfile.tools.load.schema_texts import schema_option

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Mapping, Sequence
    from contextlib import AbstractContextManager

    from ftfile.core.context import Context
    from ftfile.core.progress import OnProgress
    from ftfile.formats.reading.time_formats import TimeFormats
    from ftfile.operate.writers.arrow_rows import StorableRows
    from ftfile.tools.load.input_files import FileRows, FileToLoad


_IN_FILE = "in --schema: the file contains the types of its columns, so omit the column in --schema"


class TextColumns(NamedTuple):
    """The columns of text files.

    Attributes:
        types: by name; types of other columns are derived.
        times: the zone of times without a zone.
    """

    types: Mapping[str, pa.DataType]
    times: TimeFormats


class LoadedRows:
    """The rows of files in types of Spark, in the order of the files; can be iterated once.

    Args:
        files: at least one.
        text_columns: the columns of text files.
        required: names of columns that the first file must have.
        order: the names of the columns that are written first; the other columns follow in the order of the first file.
        context: the clock of the progress, and the source of unique texts.
        on_progress: called after each batch and after each file.
    """

    def __init__(
        self,
        files: Sequence[FileToLoad],
        text_columns: TextColumns,
        *,
        required: Collection[str] = (),
        order: Sequence[str] = (),
        context: Context,
        on_progress: OnProgress | None = None,
    ) -> None:
        self._files = files
        self._types = text_columns.types
        self._required = required
        self._order = order
        self._times = text_columns.times
        self._ids = context.ids
        self._schema: pa.Schema | None = None
        self.count = 0  # rows that were yielded
        self.is_complete = False  # True after the last row
        total_bytes = 0
        if all(file.is_regular for file in files):
            total_bytes = sum(file.size_bytes for file in files)
        self._tracker = Tracker("write", context.clock, on_progress, len(files), total_bytes)

    def __iter__(self) -> Iterator[pa.RecordBatch]:
        for file in self._files:
            with self._open_rows(file) as rows:
                yield from self._batches(file, rows)
        self.is_complete = True

    def _open_rows(self, file: FileToLoad) -> AbstractContextManager[FileRows]:
        types = self._types
        if self._schema is not None:
            types = {field.name: field.type for field in self._schema}
        if file.file_format == "csv":
            return csv_rows(file, types, self._ids, self._times)
        if file.file_format == "json":
            return json_rows(file, types, self._times, is_complete=self._schema is not None)
        if file.file_format == "parquet":
            return parquet_rows(file)
        if file.file_format == "orc":
            return orc_rows(file, self._times)
        if file.file_format == "avro":
            return avro_rows(file, self._times)
        return arrow_rows(file)

    def _batches(self, file: FileToLoad, rows: FileRows) -> Iterator[pa.RecordBatch]:
        done_bytes = 0
        with file.schema_errors():
            known = self._with_known_types(file, rows.schema)
            stored = stored_rows(pa.RecordBatchReader.from_batches(rows.schema, rows.batches), lambda: known)
            schema = self._check_schema(file, stored)
            self._check_untyped(file, rows.schema)
            if file is self._files[0]:
                yield pa.RecordBatch.from_pylist([], schema=schema)  # describes the columns if there are no rows
            for batch in stored.batches:
                self.count += batch.num_rows
                yield _in_schema(batch, schema)
                position = rows.position()
                self._tracker.add(0, position - done_bytes)
                done_bytes = position
        self._tracker.add(1, file.size_bytes - done_bytes)

    def _with_known_types(self, file: FileToLoad, schema: pa.Schema) -> pa.Schema:
        """Return a schema without the type null; a SchemaError if the type of a column is not known."""
        if not has_untyped(schema):
            return schema
        earlier = self._schema or pa.schema(list(self._types.items()))
        known = with_types_of(schema, earlier)
        for place in columns_without_labels(schema):
            if has_untyped(pa.schema([known.field(place)])):
                name, kind = schema.field(place).name, schema.field(place).type
                remedy = schema_option(name, "string")
                if not pa.types.is_null(kind):
                    remedy = "--schema with the JSON of a StructType"
                raise file.misfit(
                    name,
                    f"has the type {kind} and no values, so its type in Spark is not known: give it, as in {remedy}",
                )
        return known

    def _check_untyped(self, file: FileToLoad, schema: pa.Schema) -> None:
        """Raise a SchemaError for a given type of a column that has a type in each file."""
        if any(each.is_text for each in self._files):
            return
        for name in self._required:
            if not has_untyped(pa.schema([schema.field(name)])):
                raise file.misfit(
                    name, f"is {schema.field(name).type} in the file, and its type must not be {_IN_FILE}"
                )

    def _check_schema(self, file: FileToLoad, stored: StorableRows) -> pa.Schema:
        """Return the columns of all files; a SchemaError if this file has others."""
        names = stored.schema.names
        for name in names:
            if names.count(name) > 1:
                raise file.misfit(name, "occurs twice")
        nullable = arrow_schema(as_nullable(spark_schema_json(stored.schema)))
        if self._schema is None:
            self._check_required(file, nullable)
            order = [name for name in self._order if name in names]
            order += [name for name in names if name not in self._order]
            self._schema = pa.schema([nullable.field(name) for name in order])
            return self._schema
        first = self._files[0].name
        for field in self._schema:
            if field.name not in names:
                raise file.misfit(field.name, f"is missing, but {first} has it: all files must have the same columns")
            kind = nullable.field(field.name).type
            if not kind.equals(field.type):
                raise file.misfit(field.name, f"is {kind}, but {field.type} in {first}: all files must agree")
        for name in names:
            if name not in self._schema.names:
                raise file.misfit(name, f"is not in {first}: all files must have the same columns")
        return self._schema

    def _check_required(self, file: FileToLoad, schema: pa.Schema) -> None:
        for name in self._required:
            if name not in schema.names:
                raise file.misfit(name, "is in the given schema, but not in the file")
            kind, given = schema.field(name).type, self._types[name]
            if not kind.equals(given):
                raise file.misfit(
                    name,
                    f"is {kind} in the file, and {given} {_IN_FILE}",
                )


def _in_schema(batch: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    columns = []
    for field in schema:
        column = batch.column(field.name)
        if not column.type.equals(field.type):
            column = column.cast(field.type)  # elements and fields become nullable
        columns.append(column)
    return pa.RecordBatch.from_arrays(columns, schema=schema)
