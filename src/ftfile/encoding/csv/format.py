"""`fileFormat=csv`: rows that Spark's CSV source reads with its default options."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, BinaryIO, ClassVar

import pyarrow as pa

from ftfile.encoding.base.lines import Lines
from ftfile.encoding.base.reading import refuse
from ftfile.encoding.csv.dialect import CsvDialect
from ftfile.encoding.csv.reader import read_csv
from ftfile.encoding.csv.writer import CsvRows

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    import numpy as np
    from numpy.typing import NDArray

    from ftfile.encoding.base.lines import Encode

__all__ = ("CsvLines",)


@dataclass(frozen=True, slots=True)
class CsvLines(Lines):
    """CSV."""

    name: ClassVar[str] = "csv"
    extension = ".csv"

    dialect: CsvDialect
    columns: tuple[str, ...] | None = None  # for reading, in a file without a header; None for those of the schema

    @classmethod
    def from_options(cls, options: Mapping[str, Any]) -> CsvLines:
        return cls(CsvDialect.from_options(options))

    def definition(self, schema: pa.Schema) -> dict[str, Any]:
        columns = {} if self.dialect.header else {"columns": schema.names}
        return self.dialect.definition() | columns

    @classmethod
    def from_definition(cls, definition: Mapping[str, Any]) -> CsvLines:
        columns = definition.get("columns")
        return cls(CsvDialect.from_options(definition), tuple(columns) if columns else None)

    def check_schema(self, schema: pa.Schema) -> None:
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

    def rows(self, schema: pa.Schema) -> Encode:
        return CsvRows(schema, self.dialect).encode

    def head(self, schema: pa.Schema) -> bytes:
        return CsvRows(schema, self.dialect).names() if self.dialect.header else b""

    def without_head(self, schema: pa.Schema) -> CsvLines:
        return CsvLines(replace(self.dialect, header=False), tuple(schema.names))

    def row_ends(self, data: bytes) -> NDArray[np.integer]:
        return self.dialect.row_ends(data)

    def decode(self, file: BinaryIO, schema: pa.Schema) -> Iterator[pa.RecordBatch]:
        names = None if self.dialect.header else (self.columns or tuple(schema.names))
        return read_csv(file, schema, self.dialect, names)
