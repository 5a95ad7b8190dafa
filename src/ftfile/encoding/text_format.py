"""`fileFormat=text`: one column, one line a row, as Spark's text source reads it."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, BinaryIO, ClassVar

import pyarrow as pa
import pyarrow.compute as pc

from ftfile.arrays.buffers import text_scalar
from ftfile.core.errors import ConfigError, EncodingError
from ftfile.encoding.api import LineFormat
from ftfile.encoding.base.line_reader import batch_of, corrupt, ends_as_it_begins, separator_ends, whole_lines
from ftfile.encoding.base.line_writer import EncodedRows, LineEncoder, rows_of
from ftfile.encoding.base.schema_check import refuse
from ftfile.encoding.base.segments import LineJoiner, LineSegments

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    import numpy as np
    from numpy.typing import NDArray

    from ftfile.encoding.api import ByteWriter, Encoder, Joiner, Limits, SegmentCodec

__all__ = ("TextLines",)


@dataclass(frozen=True, slots=True)
class TextLines(LineFormat):
    """Lines of text, or of bytes.

    Attributes:
        column: for reading, the name of the column in the file; None for that of the schema.
    """

    name: ClassVar[str] = "text"

    line_sep: str = "\n"
    column: str | None = None

    @property
    def extension(self) -> str:
        """Return `.txt`."""
        return ".txt"

    @classmethod
    def from_options(cls, options: Mapping[str, Any]) -> TextLines:
        """See `Format.from_options`."""
        line_sep = options.get("lineSep", "\n")
        if not line_sep:
            raise ConfigError("option lineSep='': it takes at least one character")
        if ends_as_it_begins(line_sep):
            raise ConfigError(f"option lineSep={line_sep!r} ends as it begins: for text, choose one that does not")
        return cls(line_sep)

    def definition(self, schema: pa.Schema) -> dict[str, Any]:
        """See `Format.definition`; lines do not say what their column is called."""
        return {"lineSep": self.line_sep, "column": schema.names[0]}

    @classmethod
    def from_definition(cls, definition: Mapping[str, Any]) -> TextLines:
        """See `Format.from_definition`."""
        return cls(definition["lineSep"], definition["column"])

    def check_schema(self, schema: pa.Schema) -> None:
        """See `Format.check_schema`; there is one column, of strings or binary values."""
        if len(schema) != 1:
            advice = "select one, or use csv, json or parquet"
            refuse(self.name, [f"columns {', '.join(schema.names)}: text has exactly one column; {advice}"])
        column = schema.field(0)
        if not (pa.types.is_string(column.type) or pa.types.is_binary(column.type)):
            refuse(self.name, [f"column `{column.name}`: {column.type}; use cast(`{column.name}` AS STRING)"])

    def encoder(self, schema: pa.Schema, target: ByteWriter) -> Encoder:  # noqa: ARG002 - there is one column
        """See `Format.encoder`."""
        return _TextEncoder(target, self.line_sep)

    def segments(self, schema: pa.Schema) -> SegmentCodec:
        """See `Format.segments`."""
        named = replace(self, column=schema.names[0])
        return LineSegments(lambda target: _TextEncoder(target, self.line_sep), named)

    def joiner(self, schema: pa.Schema, target: ByteWriter, limits: Limits) -> Joiner:  # noqa: ARG002 - one column
        """See `Format.joiner`."""
        return LineJoiner(target, 0, self.row_ends, limits)

    def row_ends(self, data: bytes) -> NDArray[np.integer]:
        """See `LineFormat.row_ends`."""
        return separator_ends(data, self.line_sep.encode())

    def decode(self, file: BinaryIO, schema: pa.Schema) -> Iterator[pa.RecordBatch]:
        """See `Format.decode`; a null comes back as an empty value, which is all that text can say."""
        line_sep = self.line_sep.encode()
        name = self.column or schema.names[0]
        for block in whole_lines(file, line_sep):
            lines = pa.array(block.split(line_sep)[:-1], pa.binary())
            try:
                columns = [
                    lines.cast(column.type) if column.name == name else pa.nulls(len(lines), column.type)
                    for column in schema
                ]
            except pa.ArrowInvalid as error:
                raise corrupt(file, "text in UTF-8", error) from error
            yield batch_of(columns, schema, len(lines))


class _TextEncoder(LineEncoder):
    def __init__(self, target: ByteWriter, line_sep: str) -> None:
        super().__init__(target)
        self._line_sep = line_sep

    def _encode(self, batch: pa.RecordBatch) -> EncodedRows:
        values = batch.column(0)
        if pc.any(pc.match_substring(values, self._line_sep)).as_py():
            raise EncodingError(
                f"column `{batch.schema.names[0]}`: a value contains the line separator {self._line_sep!r} and would "
                "be read as two rows. Choose a lineSep that does not occur, or write json, csv or parquet"
            )
        empty, line_sep = text_scalar("", values.type), text_scalar(self._line_sep, values.type)
        return rows_of(pc.binary_join_element_wise(pc.fill_null(values, empty), empty, line_sep))
