"""`fileFormat=text`: one column, one line per row, which Spark's text source reads."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, BinaryIO, ClassVar

import pyarrow as pa

from ftfile.core.errors import ConfigError, EncodingError
from ftfile.core.options.table import DEFAULTS
from ftfile.formats.line_formats import EncodedRows, Lines, overlaps_itself, rows_of, whole_lines
from ftfile.formats.reading.batches import batch_of
from ftfile.formats.reading.read_errors import corrupt
from ftfile.formats.reading.schema_checks import check_one_text_column
from ftfile.rows import kernels as pc
from ftfile.rows.buffers import text_scalar

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping


@dataclass(frozen=True, slots=True)
class TextLines(Lines):
    """Lines of text, or of bytes."""

    name: ClassVar[str] = "text"
    extension = ".txt"

    line_sep: str
    column: str | None = None  # for reading, its name in the file; None for the name in the schema

    @classmethod
    def from_options(cls, options: Mapping[str, Any]) -> TextLines:
        line_sep = options.get("lineSep", DEFAULTS["lineSep"])
        if not line_sep:
            raise ConfigError("option lineSep='': it must have at least one character")
        if overlaps_itself(line_sep):
            raise ConfigError(f"option lineSep={line_sep!r}: for text, its end must differ from its beginning")
        return cls(line_sep)

    def definition(self, schema: pa.Schema) -> dict[str, Any]:
        return {"lineSep": self.line_sep, "column": schema.names[0]}

    @classmethod
    def from_definition(cls, definition: Mapping[str, Any]) -> TextLines:
        return cls(definition["lineSep"], definition["column"])

    def check_schema(self, schema: pa.Schema) -> None:
        check_one_text_column(self.name, schema, "select one column, or use csv, json or parquet", "STRING")

    def keeps(self, field: pa.Field) -> bool:  # noqa: ARG002 - a file has one column
        return False  # a null is read as an empty value

    def without_head(self, schema: pa.Schema) -> TextLines:
        return replace(self, column=schema.names[0])

    def decode(self, file: BinaryIO, schema: pa.Schema) -> Iterator[pa.RecordBatch]:
        # A null is read as an empty value.
        line_sep = self.line_sep.encode()
        name = self.column or schema.names[0]
        for block in whole_lines(file, line_sep):
            lines = pa.array(block.split(line_sep)[:-1], pa.binary())
            try:
                columns: list[pa.Array] = []
                for column in schema:
                    if column.name == name:
                        columns.append(lines.cast(column.type))
                    else:
                        columns.append(pa.nulls(len(lines), column.type))
            except pa.ArrowInvalid as error:
                raise corrupt(file, "text in UTF-8", error) from error
            yield batch_of(columns, schema, len(lines))

    def encode(self, batch: pa.RecordBatch) -> EncodedRows:
        values = batch.column(0)
        if pc.any(pc.match_substring(values, self.line_sep)).as_py():
            raise EncodingError(
                f"column `{batch.schema.names[0]}`: a value contains the line separator {self.line_sep!r} and would "
                "be read as two rows. Choose a lineSep that does not occur in the values, or write json, csv or "
                "parquet"
            )
        empty, line_sep = text_scalar("", values.type), text_scalar(self.line_sep, values.type)
        return rows_of(pc.binary_join_element_wise(pc.fill_null(values, empty), empty, line_sep))
