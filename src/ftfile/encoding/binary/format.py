"""`fileFormat=binary`: records of any bytes, told apart by a delimiter or by their lengths."""

from __future__ import annotations

import re
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import TYPE_CHECKING, Any, BinaryIO, ClassVar

import pyarrow as pa

from ftfile.core.errors import ConfigError, EncodingError, UserCodeError
from ftfile.core.extensions import installed, is_name_of_code, load
from ftfile.encoding.base.lines import EncodedRows, Lines
from ftfile.encoding.base.reading import batch_as, corrupt, refuse_all_but_one_text
from ftfile.encoding.binary.framing import Framing, framing_from_options

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    import numpy as np
    from numpy.typing import NDArray

    from ftfile.encoding.base.lines import Encode

ENTRY_POINT_GROUP = "ftfile.encoders"

_OPTION = "encoder"
_EXTENSION_FORM = re.compile(r"(\.[A-Za-z0-9_-]+)+", re.ASCII)
_PAGE = "see docs/formats/binary.md"


@dataclass(frozen=True, slots=True)
class UserEncoder:
    """The class by name, and the options for its constructor."""

    name: str  # `module:Class`, or that of an entry point
    options: tuple[tuple[str, str], ...] = field(repr=False)  # `encoder.<name>` without the prefix, sorted
    extension: str

    @classmethod
    def checked(cls, name: str, options: Mapping[str, str], extension: str) -> UserEncoder:
        """Return the encoder, checked by loading it; `extension` is used if the class has none."""
        settled = tuple(sorted(options.items()))
        instance = _made(name, settled)
        if not callable(getattr(instance, "encode", None)):
            raise ConfigError(f"{_OPTION}={name!r} has no method encode(batch): {_PAGE}")
        wanted = getattr(instance, "extension", extension)
        if not isinstance(wanted, str) or not _EXTENSION_FORM.fullmatch(wanted):
            raise ConfigError(f"{_OPTION}={name!r} has the extension {wanted!r}, and one like '.bin' is needed")
        return cls(name, settled, wanted)

    @classmethod
    def from_definition(cls, definition: Mapping[str, Any]) -> UserEncoder:
        """Return the encoder of a `definition()`; nothing is loaded."""
        return cls(definition["name"], tuple(sorted(definition["options"].items())), definition["extension"])

    def definition(self) -> dict[str, Any]:
        """Return the encoder as plain JSON."""
        return {"name": self.name, "options": dict(self.options), "extension": self.extension}

    def check_schema(self, schema: pa.Schema) -> None:
        """Raise `ConfigError` if the class cannot encode rows of a schema; it encodes no rows."""
        try:
            self.encode(pa.RecordBatch.from_pylist([], schema=schema))
        except UserCodeError as error:
            raise ConfigError(f"asked to encode no rows, {error}") from error

    def encode(self, batch: pa.RecordBatch) -> pa.Array:
        """Return the bytes, or the text, of each row; `EncodingError` for null, `UserCodeError` for other mistakes."""
        values = self._call("encode", batch)
        if isinstance(values, pa.ChunkedArray):
            values = values.combine_chunks()
        if isinstance(values, pa.NullArray):  # as `pa.array([])` is
            values = values.cast(pa.binary())
        kind = getattr(values, "type", None)
        if not isinstance(values, pa.Array) or kind not in {pa.binary(), pa.string()}:
            raise UserCodeError(
                f"{_OPTION}={self.name!r} returned {kind or type(values)}, and binary values are needed"
            )
        if len(values) != batch.num_rows:
            raise UserCodeError(f"{_OPTION}={self.name!r} returned {len(values)} values for {batch.num_rows} rows")
        if values.null_count:
            raise EncodingError(f"{_OPTION}={self.name!r} gives null: the record cannot be encoded")
        return values

    def decode(self, values: pa.BinaryArray, schema: pa.Schema) -> pa.RecordBatch:
        """Return the rows of records, with columns and types that the class chooses; `UserCodeError` if it fails."""
        if is_name_of_code(self.name):
            raise ConfigError(
                f"the records were encoded by {self.name!r}, and the log of a directory must not say which module its "
                f"readers import: give the class an entry point of the group {ENTRY_POINT_GROUP!r}, and write with its "
                f"name as {_OPTION}"
            )
        if not callable(getattr(_made(self.name, self.options), "decode", None)):
            raise ConfigError(f"{_OPTION}={self.name!r} has no method decode(values, schema), so ftfile cannot read it")
        rows = self._call("decode", values, schema)
        if not isinstance(rows, pa.RecordBatch) or rows.num_rows != len(values):
            found = f"{rows.num_rows} rows" if isinstance(rows, pa.RecordBatch) else type(rows)
            raise UserCodeError(f"{_OPTION}={self.name!r} returned {found} for {len(values)} records")
        return rows

    def _call(self, method: str, *given: object) -> Any:  # noqa: ANN401 - the user's own
        instance = _made(self.name, self.options)
        try:
            return getattr(instance, method)(*given)
        except Exception as error:
            raise UserCodeError(f"{_OPTION}={self.name!r} raised {error!r}") from error


@lru_cache(maxsize=16)
def _made(name: str, options: tuple[tuple[str, str], ...]) -> Any:  # noqa: ANN401 - the user's own
    """Return the process's instance; `ConfigError` if it cannot be loaded or made."""
    found = load(_OPTION, name if is_name_of_code(name) else _installed(name))
    try:
        return found(dict(options))
    except Exception as error:  # anything may happen in it
        given = ", ".join(f"{_OPTION}.{key}" for key, _ in options) or "no options"
        raise ConfigError(f"{_OPTION}={name!r} cannot be made from {given}: {error!r}") from error


def _installed(name: str) -> str:
    places = installed(ENTRY_POINT_GROUP)
    if name not in places:
        known = f"; there are: {', '.join(sorted(places))}" if places else ""
        raise ConfigError(
            f"{_OPTION}={name!r} is neither `module:Class` nor an entry point of the group {ENTRY_POINT_GROUP!r}, "
            f"installed where the driver and the executors run{known}"
        )
    return places[name]


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
