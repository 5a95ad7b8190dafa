"""`fileFormat=binary`: records of any bytes, told apart by a delimiter or by their lengths."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, BinaryIO, ClassVar

import pyarrow as pa

from ftfile.core.errors import EncodingError
from ftfile.encoding.base.lines import EncodedRows, Lines
from ftfile.encoding.base.reading import batch_as, corrupt, refuse_all_but_one_text
from ftfile.encoding.binary.framing import Framing, framing_from_options
from ftfile.encoding.binary.user_encoder import UserEncoder

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    import numpy as np
    from numpy.typing import NDArray

    from ftfile.encoding.base.lines import Encode

_EXTENSION = ".bin"


@dataclass(frozen=True, slots=True)
class BinaryRecords(Lines):
    """Records that are the values of one column, or that a class of the user's makes of rows."""

    name: ClassVar[str] = "binary"

    framing: Framing
    user: UserEncoder | None = None
    column: str | None = None  # for reading, its name in the file; None for that of the schema

    @property
    def extension(self) -> str:
        """Return `.bin`, or the extension of the user's class."""
        return _EXTENSION if self.user is None else self.user.extension

    @classmethod
    def from_options(cls, options: Mapping[str, Any]) -> BinaryRecords:
        framing = framing_from_options(options.get("delimiter"), options.get("lengthPrefix"))
        name, own = options.get("encoder"), options.get("encoder.", {})
        return cls(framing, None if name is None else UserEncoder.checked(name, own, _EXTENSION))

    def definition(self, schema: pa.Schema) -> dict[str, Any]:
        if self.user is not None:
            return {**self.framing.definition(), "encoder": self.user.definition()}
        return {**self.framing.definition(), "column": schema.names[0]}

    @classmethod
    def from_definition(cls, definition: Mapping[str, Any]) -> BinaryRecords:
        described, delimiter = definition.get("encoder"), definition.get("delimiter")
        user = None if described is None else UserEncoder.from_definition(described)
        delimiter = None if delimiter is None else bytes.fromhex(delimiter)
        return cls(framing_from_options(delimiter, definition.get("lengthPrefix")), user, definition.get("column"))

    def check_schema(self, schema: pa.Schema) -> None:
        if self.user is not None:
            self.user.check_schema(schema)
            return
        advice = "select one, name a class of your own as encoder, or use avro, json or parquet"
        refuse_all_but_one_text(self.name, schema, advice, "BINARY")

    def rows(self, schema: pa.Schema) -> Encode:  # noqa: ARG002 - batches say what they are
        return self._encode

    def without_head(self, schema: pa.Schema) -> BinaryRecords:
        return self if self.user is not None else replace(self, column=schema.names[0])

    def row_ends(self, data: bytes) -> NDArray[np.integer]:
        return self.framing.ends(data)

    def decode(self, file: BinaryIO, schema: pa.Schema) -> Iterator[pa.RecordBatch]:
        for values in self.framing.read(file):
            if self.user is not None:
                rows = self.user.decode(values, schema)
            else:
                rows = pa.RecordBatch.from_arrays([values], names=[self.column or schema.names[0]])
            try:
                yield batch_as(rows, schema)
            except pa.ArrowException as error:
                raise corrupt(file, f"records for {', '.join(schema.names)}", error) from error

    def _encode(self, batch: pa.RecordBatch) -> EncodedRows:
        framing, user = self.framing, self.user
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
