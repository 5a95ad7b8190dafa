"""`bucketer`: a class of the user's says where rows go."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from ftfile.arrays.buffers import values_of
from ftfile.arrays.words import plain
from ftfile.core.errors import ConfigError, UserCodeError
from ftfile.core.user_code import load
from ftfile.sink.buckets.api import Assignment, Bucket, Bucketer, Fault, assign_by_value
from ftfile.sink.buckets.file_names import split_stem, texts_of
from ftfile.sink.naming.path_rules import NAME_BYTES_MAX, path_fault

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ("UserBucketer", "UserClass")

_OPTION = "bucketer"


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
        made = load(_OPTION, self.name)
        try:
            made = made(dict(self.options))
        except Exception as error:  # anything may happen in it
            raise ConfigError(f"{_OPTION}={self.name!r} cannot be made from {dict(self.options)}: {error!r}") from error
        if not callable(getattr(made, "bucket_keys", None)):
            raise ConfigError(
                f"{_OPTION}={self.name!r} has no method bucket_keys(batch): see docs/buckets-and-names.md"
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
        encoded = plain(self._keys(batch)).dictionary_encode(null_encoding="encode")
        codes = values_of(encoded.indices, np.int32).astype(np.int64)
        return assign_by_value([self._outcome(text) for text in texts_of(encoded.dictionary)], codes)

    def _keys(self, batch: pa.RecordBatch) -> pa.Array:
        try:
            keys = self._instance.bucket_keys(batch)
        except Exception as error:
            raise UserCodeError(f"{_OPTION}={self._name!r} raised {error!r}") from error
        if isinstance(keys, pa.ChunkedArray):
            keys = keys.combine_chunks()
        kind = getattr(keys, "type", None)
        value_type = kind.value_type if isinstance(kind, pa.DictionaryType) else kind
        if not isinstance(keys, pa.Array) or value_type not in {pa.string(), pa.large_string()}:
            raise UserCodeError(f"{_OPTION}={self._name!r} returned {kind or type(keys)}, and strings are needed")
        if len(keys) != batch.num_rows:
            raise UserCodeError(f"{_OPTION}={self._name!r} returned {len(keys)} keys for {batch.num_rows} rows")
        return keys

    def _outcome(self, text: str | bytes | None) -> Bucket | Fault:
        if text is None:
            return Fault(f"{_OPTION}={self._name!r} gives null")
        if text == "" and not self._names_files:
            return Bucket("")
        fault = "is not UTF-8" if isinstance(text, bytes) else path_fault(text, self._last_bytes_max)
        if fault is not None or isinstance(text, bytes):
            return Fault(f"{_OPTION}={self._name!r} gives {text!r}, which {fault}")
        return split_stem(text) if self._names_files else Bucket(text)
