"""`fileFormat=binary`: records of any bytes, separated by a delimiter or preceded by their lengths."""

from __future__ import annotations

import re
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import TYPE_CHECKING, Any, BinaryIO, ClassVar, Literal, TypeAlias

import numpy as np
import pyarrow as pa

from ftfile.core.errors import ConfigError, EncodingError, UserCodeError
from ftfile.core.extensions import is_name_of_code, list_installed, load
from ftfile.core.options.table import DEFAULTS
from ftfile.formats.line_formats import EncodedRows, Lines, overlaps_itself, rows_of, separator_ends, whole_lines
from ftfile.formats.reading.batches import batch_as
from ftfile.formats.reading.read_errors import corrupt
from ftfile.formats.reading.schema_checks import check_one_text_column
from ftfile.rows import kernels as pc
from ftfile.rows.buffers import ragged, string_parts, text_scalar, varints

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from numpy.typing import NDArray

    from ftfile.core.options.parsing import Settings


_BLOCK_BYTES = 4 << 20
_MORE = 0x80
_VARINT_BYTES_MAX = 5  # of a length below 2**31
_SIZES: dict[str, tuple[str, Literal["big", "little"]]] = {"int32": (">u4", "big"), "int32le": ("<u4", "little")}
ENTRY_POINT_GROUP = "ftfile.encoders"
_OPTION = "encoder"
_EXTENSION = ".bin"
_EXTENSION_FORM = re.compile(r"(\.[A-Za-z0-9_-]+)+", re.ASCII)
_PAGE = "see docs/formats/binary.md"


def framing_from_options(delimiter: bytes | None, length_prefix: str | None) -> Framing:
    """Return the framing that one of two options sets; `ConfigError` if both are set, or the delimiter is ambiguous."""
    if length_prefix is not None:
        if delimiter is not None:
            raise ConfigError("delimiter and lengthPrefix are both given: give only one of them")
        return _Prefixed(length_prefix)
    used = delimiter
    if delimiter is None:
        used = DEFAULTS["delimiter"]
    if not used:
        raise ConfigError(
            "option delimiter='': it must have at least one byte; for records of any bytes, use lengthPrefix"
        )
    if overlaps_itself(used):
        raise ConfigError(
            f"option delimiter={used!r}: its end must differ from its beginning; choose another delimiter, or use "
            "lengthPrefix"
        )
    return _Delimited(used)


@dataclass(frozen=True, slots=True)
class _Delimited:
    """Records that end with a delimiter."""

    delimiter: bytes

    def definition(self) -> dict[str, Any]:
        """Return the framing as plain JSON."""
        return {"delimiter": self.delimiter.hex()}

    def frame(self, values: pa.BinaryArray) -> EncodedRows:
        """Return records without nulls as bytes of the file; `EncodingError` if a record cannot be framed."""
        if pc.any(pc.match_substring(values, self.delimiter)).as_py():
            raise EncodingError(
                f"a record contains the delimiter {self.delimiter!r} and would be read as two. Choose a delimiter that "
                "does not occur, or lengthPrefix=int32"
            )
        empty = text_scalar(b"", values.type)
        delimiter = text_scalar(self.delimiter, values.type)
        return rows_of(pc.binary_join_element_wise(values, empty, delimiter))

    def ends(self, data: bytes) -> NDArray[np.integer]:
        """Return the offset after each complete record."""
        return separator_ends(data, self.delimiter)

    def read(self, file: BinaryIO) -> Iterator[pa.BinaryArray]:
        """Yield the records of a file, some megabytes at a time; `CorruptData` if the last one is incomplete."""
        for block in whole_lines(file, self.delimiter):
            yield pa.array(block.split(self.delimiter)[:-1], pa.binary())


@dataclass(frozen=True, slots=True)
class _Prefixed:
    """Records that follow their lengths."""

    prefix: str

    def definition(self) -> dict[str, Any]:
        return {"lengthPrefix": self.prefix}

    def frame(self, values: pa.BinaryArray) -> EncodedRows:
        offsets, _ = string_parts(values)
        sizes = np.diff(offsets)
        if self.prefix == "varint":
            prefixes = ragged(*varints(sizes.astype(np.uint64)))
        else:
            matrix = sizes.astype(_SIZES[self.prefix][0]).view(np.uint8).reshape(-1, 4)
            prefixes = ragged(matrix, np.full(len(sizes), 4))
        return rows_of(pc.binary_join_element_wise(prefixes, values, text_scalar(b"", values.type)))

    def ends(self, data: bytes) -> NDArray[np.integer]:
        return self._bounds(data)[1]

    def read(self, file: BinaryIO) -> Iterator[pa.BinaryArray]:
        rest = b""
        block_bytes = _BLOCK_BYTES
        while block := file.read(block_bytes):
            rest += block
            starts, ends = self._bounds(rest)
            if len(ends):
                pieces = [rest[start:end] for start, end in zip(starts.tolist(), ends.tolist(), strict=True)]
                yield pa.array(pieces, pa.binary())
                rest = rest[int(ends[-1]) :]
            # If a record is longer than a block, it is parsed again only when all its bytes were read.
            block_bytes = max(_BLOCK_BYTES, self._read_next(rest, 0)[1] - len(rest))
        if rest:
            raise corrupt(file, "whole records", f"{len(rest)} bytes of an incomplete record")

    def _bounds(self, data: bytes) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Return the starts of all complete records, each after the length of the record, and their ends."""
        starts, ends, position = [], [], 0
        while position < len(data):
            start, position = self._read_next(data, position)
            if not start or position > len(data):
                break
            starts.append(start)
            ends.append(position)
        return np.array(starts, np.int64), np.array(ends, np.int64)

    def _read_next(self, data: bytes, position: int) -> tuple[int, int]:
        """Return start and end of the record at a position; zeros if its length is incomplete."""
        if self.prefix != "varint":
            start = position + 4
            length = int.from_bytes(data[position:start], _SIZES[self.prefix][1])
            if start <= len(data):
                return start, start + length
            return 0, 0
        length, shift = 0, 0
        for start in range(position, min(position + _VARINT_BYTES_MAX, len(data))):
            length |= (data[start] & 0x7F) << shift
            shift += 7
            if data[start] < _MORE:
                return start + 1, start + 1 + length
        return 0, 0


Framing: TypeAlias = _Delimited | _Prefixed


@dataclass(frozen=True, slots=True)
class UserEncoder:
    """The name of a user's class, and the options for its constructor."""

    name: str  # `module:Class`, or the name of an entry point
    options: Settings = field(repr=False)  # `encoder.<name>` without the prefix, sorted
    extension: str

    @classmethod
    def from_options(cls, name: str, options: Mapping[str, str], extension: str) -> UserEncoder:
        """Load the class, check it, and return its encoder; `extension` is the default for a class without one."""
        sorted_options = tuple(sorted(options.items()))
        instance = _make_user_class(name, sorted_options)
        if not callable(getattr(instance, "encode", None)):
            raise ConfigError(f"{_OPTION}={name!r} has no method encode(batch): {_PAGE}")
        used_extension = getattr(instance, "extension", extension)
        if not isinstance(used_extension, str) or not _EXTENSION_FORM.fullmatch(used_extension):
            raise ConfigError(
                f"{_OPTION}={name!r} has the extension {used_extension!r}, and an extension such as '.bin' is required"
            )
        return cls(name, sorted_options, used_extension)

    @classmethod
    def from_definition(cls, definition: Mapping[str, Any]) -> UserEncoder:
        """Return the encoder of a `definition()`, without loading the class."""
        return cls(definition["name"], tuple(sorted(definition["options"].items())), definition["extension"])

    def definition(self) -> dict[str, Any]:
        """Return the encoder as plain JSON."""
        return {"name": self.name, "options": dict(self.options), "extension": self.extension}

    def check_schema(self, schema: pa.Schema) -> None:
        """Raise `ConfigError` if the class cannot encode a batch without rows of a schema."""
        try:
            self.encode(pa.RecordBatch.from_pylist([], schema=schema))
        except UserCodeError as error:
            raise ConfigError(f"when it encoded a batch without rows, {error}") from error

    def encode(self, batch: pa.RecordBatch) -> pa.Array:
        """Return the bytes, or the text, of each row; `EncodingError` for null, `UserCodeError` for other mistakes."""
        values = self._call("encode", batch)
        if isinstance(values, pa.ChunkedArray):
            values = values.combine_chunks()
        if isinstance(values, pa.NullArray):  # like `pa.array([])`
            values = values.cast(pa.binary())
        kind = getattr(values, "type", None)
        if not isinstance(values, pa.Array) or kind not in {pa.binary(), pa.string()}:
            raise UserCodeError(
                f"{_OPTION}={self.name!r} returned {kind or type(values)}, and binary values are required"
            )
        if len(values) != batch.num_rows:
            raise UserCodeError(f"{_OPTION}={self.name!r} returned {len(values)} values for {batch.num_rows} rows")
        if values.null_count:
            raise EncodingError(f"{_OPTION}={self.name!r} returned null: the record cannot be encoded")
        return values

    def decode(self, values: pa.BinaryArray, schema: pa.Schema) -> pa.RecordBatch:
        """Return the rows of records; the class chooses columns and types, and its errors become `UserCodeError`."""
        if is_name_of_code(self.name):
            raise ConfigError(
                f"the records were encoded by {self.name!r}, and ftfile does not import a module only because the log "
                f"of a directory names it: register the class as an entry point of the group {ENTRY_POINT_GROUP!r}, "
                f"and write with its name as {_OPTION}"
            )
        if not callable(getattr(_make_user_class(self.name, self.options), "decode", None)):
            raise ConfigError(f"{_OPTION}={self.name!r} has no method decode(values, schema), so ftfile cannot read it")
        rows = self._call("decode", values, schema)
        if not isinstance(rows, pa.RecordBatch) or rows.num_rows != len(values):
            actual = f"{rows.num_rows} rows" if isinstance(rows, pa.RecordBatch) else type(rows)
            raise UserCodeError(f"{_OPTION}={self.name!r} returned {actual} for {len(values)} records")
        return rows

    def _call(self, method: str, *arguments: object) -> Any:  # noqa: ANN401 - the user's own
        instance = _make_user_class(self.name, self.options)
        try:
            return getattr(instance, method)(*arguments)
        except Exception as error:
            raise UserCodeError(f"{_OPTION}={self.name!r} raised {error!r}") from error


@lru_cache(maxsize=16)
def _make_user_class(name: str, options: Settings) -> Any:  # noqa: ANN401 - the user's own
    """Return an instance of a user's class; `ConfigError` if it cannot be loaded or created. Cached by process."""
    place = name
    if not is_name_of_code(name):
        place = _find_installed(name)
    class_ = load(_OPTION, place)
    try:
        return class_(dict(options))
    except Exception as error:  # code of the user can raise anything
        option_names = ", ".join(f"{_OPTION}.{key}" for key, _ in options) or "no options"
        raise ConfigError(f"{_OPTION}={name!r} cannot be created from {option_names}: {error!r}") from error


def _find_installed(name: str) -> str:
    """Return the place of an entry point, `module:Class`."""
    places = list_installed(ENTRY_POINT_GROUP)
    if name not in places:
        choices = ""
        if places:
            choices = f"; installed: {', '.join(sorted(places))}"
        raise ConfigError(
            f"{_OPTION}={name!r} is neither `module:Class` nor an entry point of the group {ENTRY_POINT_GROUP!r}, "
            f"installed where the driver and the executors run{choices}"
        )
    return places[name]


@dataclass(frozen=True, slots=True)
class BinaryRecords(Lines):
    """Records that are the values of one column, or that a user's class encodes from rows."""

    name: ClassVar[str] = "binary"
    settings_of_writers: ClassVar[frozenset[str]] = frozenset({"column"})  # the schema has the column

    framing: Framing
    user: UserEncoder | None = None
    column: str | None = None  # the name of the column in the file, for readers; None for its name in the schema

    @property
    def extension(self) -> str:
        """Return `.bin`, or the extension of the user's class."""
        if self.user is None:
            return _EXTENSION
        return self.user.extension

    @classmethod
    def from_options(cls, options: Mapping[str, Any]) -> BinaryRecords:
        framing = framing_from_options(options.get("delimiter"), options.get("lengthPrefix"))
        name, encoder_options = options.get("encoder"), options.get("encoder.", {})
        user = None
        if name is not None:
            user = UserEncoder.from_options(name, encoder_options, _EXTENSION)
        return cls(framing, user)

    def definition(self, schema: pa.Schema) -> dict[str, Any]:
        if self.user is not None:
            return {**self.framing.definition(), "encoder": self.user.definition()}
        return {**self.framing.definition(), "column": schema.names[0]}

    @classmethod
    def from_definition(cls, definition: Mapping[str, Any]) -> BinaryRecords:
        encoder_definition = definition.get("encoder")
        user = None
        if encoder_definition is not None:
            user = UserEncoder.from_definition(encoder_definition)
        delimiter_text = definition.get("delimiter")
        delimiter = None
        if delimiter_text is not None:
            delimiter = bytes.fromhex(delimiter_text)
        return cls(framing_from_options(delimiter, definition.get("lengthPrefix")), user, definition.get("column"))

    def check_schema(self, schema: pa.Schema) -> None:
        if self.user is not None:
            self.user.check_schema(schema)
            return
        advice = "select one column, give your own class as encoder, or use avro, json or parquet"
        check_one_text_column(self.name, schema, advice, "BINARY")

    def keeps(self, field: pa.Field) -> bool:  # noqa: ARG002 - a user's class can change all values
        return self.user is None

    def without_head(self, schema: pa.Schema) -> BinaryRecords:
        if self.user is not None:
            return self
        return replace(self, column=schema.names[0])

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

    def encode(self, batch: pa.RecordBatch) -> EncodedRows:
        framing, user = self.framing, self.user
        if user is not None:
            return framing.frame(user.encode(batch).view(pa.binary()))
        name, values = batch.schema.names[0], batch.column(0)
        if values.null_count:
            raise EncodingError(
                f"column `{name}`: a null has no bytes; filter out such rows, or use coalesce(`{name}`, '')"
            )
        try:
            return framing.frame(values.view(pa.binary()))
        except EncodingError as error:
            raise EncodingError(f"column `{name}`: {error}") from error
