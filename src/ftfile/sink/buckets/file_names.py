"""`fileNameColumn`: a column says in which file, of which sub-directory, its row goes."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from ftfile.arrays.buffers import values_of
from ftfile.arrays.words import plain
from ftfile.core.errors import ConfigError
from ftfile.sink.buckets.api import Assignment, Bucket, Bucketer, Fault, assign_by_value
from ftfile.sink.naming.path_rules import path_fault

__all__ = ("FileNames", "file_name_column", "split_stem", "texts_of")

_OPTION = "fileNameColumn"


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
        encoded = plain(batch.column(self.column)).dictionary_encode(null_encoding="encode")
        codes = values_of(encoded.indices, np.int32).astype(np.int64)
        return assign_by_value([self._outcome(text) for text in texts_of(encoded.dictionary)], codes)

    def _outcome(self, text: str | bytes | None) -> Bucket | Fault:
        if not text:
            return Fault(
                f"{_OPTION}: column {self.column!r} is {'null' if text is None else 'empty'}: no file is named"
            )
        fault = "is not UTF-8" if isinstance(text, bytes) else path_fault(text, self.stem_bytes_max)
        if fault is not None or isinstance(text, bytes):
            return Fault(f"{_OPTION}: column {self.column!r} holds {text!r}, which {fault}")
        return split_stem(text)


def split_stem(path: str) -> Bucket:
    """Return the bucket whose last part is the beginning of its files' names."""
    directory, _, stem = path.rpartition("/")
    return Bucket(directory, stem)


def texts_of(values: pa.Array) -> list[str | bytes | None]:
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
        raise ConfigError(f"{_OPTION} names no column: {name!r}; the columns are {', '.join(schema.names)}")
    column: str = spelling[name.lower()]
    kind = schema.field(column).type
    if not pa.types.is_string(kind):
        raise ConfigError(f"{_OPTION}: column {column!r} is {kind}, and a string is needed")
    return column
