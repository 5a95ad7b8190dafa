"""The bucketers: columns as directories, paths of files in a column, and a class of the user's."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from ftfile.arrays.buffers import values_of
from ftfile.arrays.words import plain
from ftfile.core.errors import ConfigError, EncodingError, UserCodeError
from ftfile.core.user_code import load
from ftfile.encoding.partitions.paths import bucket_names
from ftfile.sink.buckets.api import Assignment, Bucket, Bucketer, Fault, assign_by_value
from ftfile.sink.naming.path_rules import NAME_BYTES_MAX, path_fault

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

__all__ = ("FileNames", "PartitionColumn", "UserBucketer", "UserClass", "file_name_column")

_FILE_NAME, _BUCKETER = "fileNameColumn", "bucketer"


def _by_value(array: pa.Array, outcomes_of: Callable[[pa.Array], Sequence[Bucket | Fault]]) -> Assignment:
    """Return the assignment of rows by the outcomes of their distinct values."""
    encoded = plain(array).dictionary_encode(null_encoding="encode")
    return assign_by_value(outcomes_of(encoded.dictionary), values_of(encoded.indices, np.int32).astype(np.int64))


@dataclass(frozen=True, slots=True)
class PartitionColumn(Bucketer):
    """One column, which was checked; its values are directories `column=value`.

    Attributes:
        time_zone: whose clocks show timestamps that are instants.
    """

    column: str
    time_zone: str

    @property
    def leaving(self) -> tuple[str, ...]:
        """See `Bucketer.leaving`."""
        return (self.column,)

    def assign(self, batch: pa.RecordBatch) -> Assignment:
        """See `Bucketer.assign`."""
        return _by_value(batch.column(self.column), self._outcomes)

    def _outcomes(self, values: pa.Array) -> list[Bucket | Fault]:
        try:
            return [Bucket(name) for name in bucket_names(self.column, values, self.time_zone)]
        except EncodingError as error:
            if len(values) == 1:
                return [Fault(str(error))]
            half = len(values) // 2
            return self._outcomes(values[:half]) + self._outcomes(values[half:])


@dataclass(frozen=True, slots=True)
class FileNames(Bucketer):
    """A column of paths: all but the last part are directories, with the last one the names of the files begin.

    Attributes:
        stem_bytes_max: what batch, number and ending leave of the length of a name.
    """

    column: str
    stem_bytes_max: int

    @property
    def leaving(self) -> tuple[str, ...]:
        """See `Bucketer.leaving`."""
        return (self.column,)

    def assign(self, batch: pa.RecordBatch) -> Assignment:
        """See `Bucketer.assign`; null, the empty string and what is no path below the directory are faults."""
        return _by_value(batch.column(self.column), lambda values: list(map(self._outcome, _texts_of(values))))

    def _outcome(self, text: str | bytes | None) -> Bucket | Fault:
        if not text:
            return Fault(
                f"{_FILE_NAME}: column {self.column!r} is {'null' if text is None else 'empty'}: no file is named"
            )
        fault = "is not UTF-8" if isinstance(text, bytes) else path_fault(text, self.stem_bytes_max)
        if fault is not None or isinstance(text, bytes):
            return Fault(f"{_FILE_NAME}: column {self.column!r} holds {text!r}, which {fault}")
        return _split_stem(text)


def _split_stem(path: str) -> Bucket:
    """Return the bucket whose last part is the beginning of its files' names."""
    directory, _, stem = path.rpartition("/")
    return Bucket(directory, stem)


def _texts_of(values: pa.Array) -> list[str | bytes | None]:
    """Return strings, and as bytes those that are not UTF-8."""
    try:
        values.validate(full=True)
    except pa.ArrowInvalid:
        return [_text(data) for data in values.cast(pa.binary()).to_pylist()]
    texts: list[str | bytes | None] = values.to_pylist()
    return texts


def _text(data: bytes | None) -> str | bytes | None:
    try:
        return None if data is None else data.decode()
    except UnicodeDecodeError:
        return data


def file_name_column(name: str, schema: pa.Schema) -> str:
    """Return the column in its schema's spelling.

    Raises:
        ConfigError: there is none, or it is no string.
    """
    spelling = {known.lower(): known for known in schema.names}
    if name.lower() not in spelling:
        raise ConfigError(f"{_FILE_NAME} names no column: {name!r}; the columns are {', '.join(schema.names)}")
    column: str = spelling[name.lower()]
    kind = schema.field(column).type
    if not pa.types.is_string(kind):
        raise ConfigError(f"{_FILE_NAME}: column {column!r} is {kind}, and a string is needed")
    return column


@dataclass(frozen=True, slots=True)
class UserClass:
    """The class by name, and what its constructor is given.

    Attributes:
        name: `module:Class`.
        options: the options `bucketer.<name>`, without that prefix, sorted.
    """

    name: str
    options: tuple[tuple[str, str], ...]

    @classmethod
    def checked(cls, name: str, options: Mapping[str, str], schema: pa.Schema) -> UserClass:
        """Load the class, make one, and ask it for the buckets of no rows.

        Raises:
            ConfigError: any of it failed.
        """
        found = cls(name, tuple(sorted(options.items())))
        try:
            found.made().assign(pa.RecordBatch.from_pylist([], schema=schema))
        except UserCodeError as error:
            raise ConfigError(f"asked for the buckets of no rows, {error}") from error
        return found

    def made(self, stem_bytes_max: int = NAME_BYTES_MAX) -> UserBucketer:
        """Return a new instance.

        Args:
            stem_bytes_max: what batch, number and ending leave of the length of a name.

        Raises:
            ConfigError: it cannot be loaded or made, or lacks a method.
        """
        made = load(_BUCKETER, self.name)
        try:
            made = made(dict(self.options))
        except Exception as error:  # anything may happen in it
            raise ConfigError(
                f"{_BUCKETER}={self.name!r} cannot be made from {dict(self.options)}: {error!r}"
            ) from error
        if not callable(getattr(made, "bucket_keys", None)):
            raise ConfigError(
                f"{_BUCKETER}={self.name!r} has no method bucket_keys(batch): see docs/buckets-and-names.md"
            )
        return UserBucketer(self.name, made, stem_bytes_max)


class UserBucketer(Bucketer):
    """Asks an instance of the user's class."""

    def __init__(self, name: str, instance: Any, stem_bytes_max: int) -> None:  # noqa: ANN401 - the user's own
        self._name = name
        self._instance = instance
        self._names_files = bool(getattr(instance, "names_files", False))
        self._last_bytes_max = stem_bytes_max if self._names_files else NAME_BYTES_MAX

    def assign(self, batch: pa.RecordBatch) -> Assignment:
        """See `Bucketer.assign`; null, and what is no path below the directory, are faults.

        Raises:
            UserCodeError: it raised, or did not return a string for each row; names the class.
        """
        return _by_value(self._keys(batch), lambda values: list(map(self._outcome, _texts_of(values))))

    def _keys(self, batch: pa.RecordBatch) -> pa.Array:
        try:
            keys = self._instance.bucket_keys(batch)
        except Exception as error:
            raise UserCodeError(f"{_BUCKETER}={self._name!r} raised {error!r}") from error
        if isinstance(keys, pa.ChunkedArray):
            keys = keys.combine_chunks()
        kind = getattr(keys, "type", None)
        value_type = kind.value_type if isinstance(kind, pa.DictionaryType) else kind
        if not isinstance(keys, pa.Array) or value_type not in {pa.string(), pa.large_string()}:
            raise UserCodeError(f"{_BUCKETER}={self._name!r} returned {kind or type(keys)}, and strings are needed")
        if len(keys) != batch.num_rows:
            raise UserCodeError(f"{_BUCKETER}={self._name!r} returned {len(keys)} keys for {batch.num_rows} rows")
        return keys

    def _outcome(self, text: str | bytes | None) -> Bucket | Fault:
        if text is None:
            return Fault(f"{_BUCKETER}={self._name!r} gives null")
        if text == "" and not self._names_files:
            return Bucket("")
        fault = "is not UTF-8" if isinstance(text, bytes) else path_fault(text, self._last_bytes_max)
        if fault is not None or isinstance(text, bytes):
            return Fault(f"{_BUCKETER}={self._name!r} gives {text!r}, which {fault}")
        return _split_stem(text) if self._names_files else Bucket(text)
