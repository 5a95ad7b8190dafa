"""`fileFormat=csv`: rows that Spark's CSV source reads with its default options."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, BinaryIO, ClassVar

import pyarrow as pa

from ftfile.encoding.api import LineFormat
from ftfile.encoding.base.schema_check import refuse
from ftfile.encoding.base.segments import LineJoiner, LineSegments
from ftfile.encoding.csv.dialect import CsvDialect
from ftfile.encoding.csv.reader import read_csv
from ftfile.encoding.csv.writer import CsvEncoder

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    import numpy as np
    from numpy.typing import NDArray

    from ftfile.encoding.api import ByteWriter, Encoder, Joiner, Limits, SegmentCodec

__all__ = ("CsvLines",)


@dataclass(frozen=True, slots=True)
class CsvLines(LineFormat):
    """CSV.

    Attributes:
        columns: for reading, those of a file without a header in their order; None for those of the schema.
    """

    name: ClassVar[str] = "csv"

    dialect: CsvDialect = field(default_factory=CsvDialect)
    columns: tuple[str, ...] | None = None

    @property
    def extension(self) -> str:
        """Return `.csv`."""
        return ".csv"

    @classmethod
    def from_options(cls, options: Mapping[str, Any]) -> CsvLines:
        """See `Format.from_options`."""
        return cls(CsvDialect.from_options(options))

    def definition(self, schema: pa.Schema) -> dict[str, Any]:
        """See `Format.definition`; without a header, the names of the columns belong to it."""
        columns = {} if self.dialect.header else {"columns": schema.names}
        return self.dialect.definition() | columns

    @classmethod
    def from_definition(cls, definition: Mapping[str, Any]) -> CsvLines:
        """See `Format.from_definition`."""
        columns = definition.get("columns")
        return cls(CsvDialect.from_options(definition), tuple(columns) if columns else None)

    def check_schema(self, schema: pa.Schema) -> None:
        """See `Format.check_schema`; CSV has no nesting, and Spark reads other bytes than were written."""
        problems = []
        for column in schema:
            if pa.types.is_nested(column.type):
                problems.append(f"column `{column.name}`: {column.type}; use to_json(`{column.name}`), json or parquet")
            elif pa.types.is_binary(column.type):
                problems.append(f"column `{column.name}`: binary; use base64(`{column.name}`), json or parquet")
        if len(schema) == 1 and schema.field(0).nullable and not self.dialect.null_value:
            problems.append(
                f"column `{schema.field(0).name}`: its nulls would be empty lines, which readers skip; "
                "set nullValue, as in nullValue=\\N, or use text"
            )
        refuse(self.name, problems)

    def encoder(self, schema: pa.Schema, target: ByteWriter) -> Encoder:
        """See `Format.encoder`."""
        return CsvEncoder(schema, target, self.dialect)

    def segments(self, schema: pa.Schema) -> SegmentCodec:
        """See `Format.segments`; without the header, which is the part's."""
        headless = replace(self.dialect, header=False)
        as_read = CsvLines(headless, tuple(schema.names))
        return LineSegments(lambda target: CsvEncoder(schema, target, headless), as_read)

    def joiner(self, schema: pa.Schema, target: ByteWriter, limits: Limits) -> Joiner:
        """See `Format.joiner`."""
        start = target.position
        CsvEncoder(schema, target, self.dialect)  # writes the header
        return LineJoiner(target, target.position - start, self.dialect.row_ends, limits)

    def row_ends(self, data: bytes) -> NDArray[np.integer]:
        """See `LineFormat.row_ends`."""
        return self.dialect.row_ends(data)

    def decode(self, file: BinaryIO, schema: pa.Schema) -> Iterator[pa.RecordBatch]:
        """See `Format.decode`."""
        names = None if self.dialect.header else (self.columns or tuple(schema.names))
        return read_csv(file, schema, self.dialect, names)
