"""`fileFormat=binary`: records of any bytes, told apart by a delimiter or by their lengths."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, BinaryIO, ClassVar

import pyarrow as pa

from ftfile.arrays.nested import rebuild
from ftfile.core.errors import EncodingError
from ftfile.encoding.api import LineFormat
from ftfile.encoding.base.line_reader import batch_of, corrupt
from ftfile.encoding.base.line_writer import EncodedRows, LineEncoder
from ftfile.encoding.base.schema_check import refuse
from ftfile.encoding.base.segments import LineJoiner, LineSegments
from ftfile.encoding.binary.framing import Framing, framing_from_definition, framing_from_options
from ftfile.encoding.binary.user_encoder import UserEncoder

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    import numpy as np
    from numpy.typing import NDArray

    from ftfile.encoding.api import ByteWriter, Encoder, Joiner, Limits, SegmentCodec

__all__ = ("BinaryRecords",)

_EXTENSION = ".bin"


@dataclass(frozen=True, slots=True)
class BinaryRecords(LineFormat):
    """Records that are the values of one column, or what a class of the user's makes of rows.

    Attributes:
        framing: how records are told apart.
        user: the class; None for the values of the column.
        column: for reading, the name of the column in the file; None for that of the schema.
    """

    name: ClassVar[str] = "binary"

    framing: Framing
    user: UserEncoder | None = None
    column: str | None = None

    @property
    def extension(self) -> str:
        """Return `.bin`, or what the class says."""
        return _EXTENSION if self.user is None else self.user.extension

    @classmethod
    def from_options(cls, options: Mapping[str, Any]) -> BinaryRecords:
        """See `Format.from_options`; the user's class is loaded."""
        framing = framing_from_options(options.get("delimiter"), options.get("lengthPrefix"))
        name, own = options.get("encoder"), options.get("encoder.", {})
        return cls(framing, None if name is None else UserEncoder.checked(name, own, _EXTENSION))

    def definition(self, schema: pa.Schema) -> dict[str, Any]:
        """See `Format.definition`; records do not say what their column is called."""
        if self.user is not None:
            return {**self.framing.definition(), "encoder": self.user.definition()}
        return {**self.framing.definition(), "column": schema.names[0]}

    @classmethod
    def from_definition(cls, definition: Mapping[str, Any]) -> BinaryRecords:
        """See `Format.from_definition`."""
        described = definition.get("encoder")
        user = None if described is None else UserEncoder.from_definition(described)
        return cls(framing_from_definition(definition), user, definition.get("column"))

    def check_schema(self, schema: pa.Schema) -> None:
        """See `Format.check_schema`; without a class there is one column, of binary values or strings.

        Raises:
            ConfigError: the class cannot encode such rows.
        """
        if self.user is not None:
            self.user.check_schema(schema)
            return
        if len(schema) != 1:
            advice = "select one, name a class of your own as encoder, or use avro, json or parquet"
            refuse(self.name, [f"columns {', '.join(schema.names)}: binary has exactly one column; {advice}"])
        column = schema.field(0)
        if not (pa.types.is_string(column.type) or pa.types.is_binary(column.type)):
            refuse(self.name, [f"column `{column.name}`: {column.type}; use cast(`{column.name}` AS BINARY)"])

    def encoder(self, schema: pa.Schema, target: ByteWriter) -> Encoder:  # noqa: ARG002 - rows say what they are
        """See `Format.encoder`."""
        return _RecordEncoder(target, self)

    def segments(self, schema: pa.Schema) -> SegmentCodec:
        """See `Format.segments`."""
        named = self if self.user is not None else replace(self, column=schema.names[0])
        return LineSegments(lambda target: _RecordEncoder(target, self), named)

    def joiner(self, schema: pa.Schema, target: ByteWriter, limits: Limits) -> Joiner:  # noqa: ARG002 - bytes are joined
        """See `Format.joiner`."""
        return LineJoiner(target, 0, self.row_ends, limits)

    def row_ends(self, data: bytes) -> NDArray[np.integer]:
        """See `LineFormat.row_ends`."""
        return self.framing.ends(data)

    def decode(self, file: BinaryIO, schema: pa.Schema) -> Iterator[pa.RecordBatch]:
        """See `Format.decode`.

        Raises:
            ConfigError, UserCodeError: see `UserEncoder.decode`.
        """
        for values in self.framing.read(file):
            if self.user is not None:
                rows = self.user.decode(values, schema)
            else:
                rows = pa.RecordBatch.from_arrays([values], names=[self.column or schema.names[0]])
            try:
                columns = [
                    rebuild(rows.column(column.name), column.type, pa.Array.cast)
                    if column.name in rows.schema.names
                    else pa.nulls(len(values), column.type)
                    for column in schema
                ]
            except pa.ArrowException as error:
                raise corrupt(file, f"records for {', '.join(schema.names)}", error) from error
            yield batch_of(columns, schema, len(values))


class _RecordEncoder(LineEncoder):
    def __init__(self, target: ByteWriter, options: BinaryRecords) -> None:
        super().__init__(target)
        self._options = options

    def _encode(self, batch: pa.RecordBatch) -> EncodedRows:
        framing, user = self._options.framing, self._options.user
        if user is not None:
            return framing.frame(user.encode(batch).view(pa.binary()))
        name, values = batch.schema.names[0], batch.column(0)
        if values.null_count:
            raise EncodingError(
                f"column `{name}`: a null has no bytes; leave such rows out, or use coalesce(`{name}`, '')"
            )
        try:
            return framing.frame(values.view(pa.binary()))
        except EncodingError as error:
            raise EncodingError(f"column `{name}`: {error}") from error
