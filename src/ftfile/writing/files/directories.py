"""Assignment of rows to directories by columns, by paths in a column, by a user's class, or by several of these."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import reduce
from itertools import accumulate, chain
from typing import TYPE_CHECKING, NamedTuple, TypeAlias

import numpy as np
import pyarrow as pa

from ftfile.core.errors import ConfigError, EncodingError, UserCodeError
from ftfile.core.extensions import load
from ftfile.formats.partition_paths import partition_names
from ftfile.log.format.layout import directory_key
from ftfile.rows import kernels as pc
from ftfile.rows.buffers import from_numpy, rows_where, to_plain, values_of
from ftfile.storage.paths import NAME_BYTES_MAX
from ftfile.writing.files.naming import path_fault

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from ftfile.writing.files.naming import PathCheck


_FILE_NAME, _ASSIGNER = "fileNameColumn", "directoryAssigner"


class Destination(NamedTuple):
    """The directory of rows, and the stem of their file names."""

    directory: str  # relative; empty for the root directory
    stem: str = ""  # the start of file names; empty if it does not depend on rows


# The destination of the rows with a value, or a sentence why they have none, with the column and the value if present.
Outcome: TypeAlias = Destination | str

# Handles rows that cannot be written, with one fault for each row. It may raise an error.
Refuse: TypeAlias = Callable[[pa.RecordBatch, Sequence[str]], None]


@dataclass(frozen=True, slots=True)
class Assignment:
    """The destination of each row."""

    destinations: list[Destination]  # distinct, in the order of their first rows; each has rows
    codes: NDArray[np.int64]  # for each row, the index of its destination, or -1 - n for the fault n
    faults: list[str] = field(default_factory=list)


class DirectoryAssigner(ABC):
    """Assigns a destination to each row. An instance is used by one thread of one task."""

    path_columns: tuple[str, ...] = ()  # columns whose values are in paths instead of files
    only: Destination | None = None  # the destination of all rows, if it does not depend on them

    @abstractmethod
    def assign(self, batch: pa.RecordBatch) -> Assignment:
        """Return the destinations of the rows of a non-empty batch."""


def assign_by_value(outcomes: Sequence[Outcome], codes: NDArray[np.int64]) -> Assignment:
    """Return the assignment of rows, from the outcomes of distinct values and the index of each row's value.

    Several values may have the same destination.
    """
    places: dict[Destination, int] = {}
    faults: list[str] = []
    merged = []
    for outcome in outcomes:
        if isinstance(outcome, str):
            faults.append(outcome)
            merged.append(-len(faults))
        else:
            merged.append(places.setdefault(outcome, len(places)))
    if len(places) < len(outcomes):
        codes = np.array(merged)[codes]
    return Assignment(list(places), codes, faults)


class PartitionColumn(DirectoryAssigner):
    """A checked partition column. Each value has a directory `column=value`."""

    def __init__(self, column: str, time_zone: str) -> None:
        self.path_columns = (column,)
        self._column = column
        self._time_zone = time_zone

    def assign(self, batch: pa.RecordBatch) -> Assignment:
        """See `DirectoryAssigner.assign`."""
        return _by_value(batch.column(self._column), self._outcomes)

    def _outcomes(self, values: pa.Array) -> list[Outcome]:
        try:
            names = partition_names(self._column, values, self._time_zone)
        except EncodingError as error:
            if len(values) == 1:
                return [str(error)]
            half = len(values) // 2
            return self._outcomes(values[:half]) + self._outcomes(values[half:])
        return [Destination(name) for name in names]


class FileNames(DirectoryAssigner):
    """A column of paths. The last component is the stem of file names, and the other components are directories."""

    def __init__(self, column: str, stem_bytes_max: int) -> None:
        self.path_columns = (column,)
        self._column = column
        self._stem_bytes_max = stem_bytes_max

    def assign(self, batch: pa.RecordBatch) -> Assignment:
        """See `DirectoryAssigner.assign`. Null, the empty string and paths outside the directory are faults."""
        return _by_value(batch.column(self._column), lambda values: list(map(self._outcome, _texts_of(values))))

    def _outcome(self, text: str | bytes | None) -> Outcome:
        subject = f"{_FILE_NAME}: column {self._column!r}"
        if not text:
            return f"{subject} is {'null' if text is None else 'empty'}: it names no file"
        return _path_outcome(f"{subject} contains", text, self._stem_bytes_max, names_file=True)


class UserAssigner(DirectoryAssigner):
    """An instance of the user's class. If its creation fails or a method is missing, a ConfigError is raised."""

    def __init__(self, name: str, options: Mapping[str, str], stem_bytes_max: int = NAME_BYTES_MAX) -> None:
        self._option = f"{_ASSIGNER}={name!r}"
        class_ = load(_ASSIGNER, name)
        try:
            self._instance = class_(dict(options))
        except Exception as error:  # user code may raise any exception
            raise ConfigError(f"{self._option} cannot be created from {dict(options)}: {error!r}") from error
        if not callable(getattr(self._instance, "paths", None)):
            raise ConfigError(f"{self._option} has no method paths(batch): see docs/directories-and-names.md")
        self._names_files = bool(getattr(self._instance, "names_files", False))
        self._last_bytes_max = stem_bytes_max if self._names_files else NAME_BYTES_MAX

    def assign(self, batch: pa.RecordBatch) -> Assignment:
        """See `DirectoryAssigner.assign`. Null and paths outside the directory are faults."""
        return _by_value(self._keys(batch), lambda values: list(map(self._outcome, _texts_of(values))))

    def _keys(self, batch: pa.RecordBatch) -> pa.Array:
        try:
            keys = self._instance.paths(batch)
        except Exception as error:
            raise UserCodeError(f"{self._option} raised {error!r}") from error
        if isinstance(keys, pa.ChunkedArray):
            keys = keys.combine_chunks()
        kind = getattr(keys, "type", None)
        value_type = kind
        if isinstance(kind, pa.DictionaryType):
            value_type = kind.value_type
        if not isinstance(keys, pa.Array) or value_type not in {pa.string(), pa.large_string()}:
            raise UserCodeError(f"{self._option} returned {kind or type(keys)}, but must return strings")
        if len(keys) != batch.num_rows:
            raise UserCodeError(f"{self._option} returned {len(keys)} keys for {batch.num_rows} rows")
        return keys

    def _outcome(self, text: str | bytes | None) -> Outcome:
        if text is None:
            return f"{self._option} returned null"
        if text == "" and not self._names_files:
            return Destination("")
        return _path_outcome(f"{self._option} returned", text, self._last_bytes_max, names_file=self._names_files)


def _by_value(array: pa.Array, outcomes_of: Callable[[pa.Array], Sequence[Outcome]]) -> Assignment:
    """Return the assignment of rows from the outcomes of their distinct values."""
    encoded = to_plain(array).dictionary_encode(null_encoding="encode")
    return assign_by_value(outcomes_of(encoded.dictionary), values_of(encoded.indices, np.int32).astype(np.int64))


def _path_outcome(giver: str, path: str | bytes, last_bytes_max: int, *, names_file: bool) -> Outcome:
    fault = "is not UTF-8" if isinstance(path, bytes) else path_fault(path, last_bytes_max)
    if fault is not None or isinstance(path, bytes):
        return f"{giver} {path!r}, which {fault}"
    directory, _, stem = path.rpartition("/")
    return Destination(directory, stem) if names_file else Destination(path)


def _texts_of(values: pa.Array) -> list[str | bytes | None]:
    """Return the values as strings. Values that are not UTF-8 are returned as bytes."""
    try:
        values.validate(full=True)
    except pa.ArrowInvalid:
        return [_text(data) for data in values.cast(pa.binary()).to_pylist()]
    texts: list[str | bytes | None] = values.to_pylist()
    return texts


def _text(data: bytes | None) -> str | bytes | None:
    try:
        if data is None:
            return None
        return data.decode()
    except UnicodeDecodeError:
        return data


class DirectoryRows(NamedTuple):
    """The rows of one directory, which are consecutive in a batch."""

    key: str
    start: int
    rows: int


def in_sequence(keys: Sequence[str], counts: Sequence[int]) -> list[DirectoryRows]:
    """Return the rows of consecutive directories with these numbers of rows. Empty directories are left out."""
    starts = [0, *accumulate(counts)][: len(counts)]
    return [DirectoryRows(*place) for place in zip(keys, starts, counts, strict=True) if place[2]]


class Router:
    """Sorts rows by destination.

    The assigners are ordered from the outermost directory to the innermost. Without assigners, all rows belong to the
    root directory. The path check finds destinations for which no valid file names exist.
    """

    def __init__(
        self, assigners: Sequence[DirectoryAssigner], refuse: Refuse, path_check: PathCheck | None = None
    ) -> None:
        self._assigners = assigners
        self._refuse = refuse
        self._path_check = path_check
        self._path_columns = list(chain.from_iterable(assigner.path_columns for assigner in assigners))
        fixed = []
        for assigner in assigners:
            if assigner.only is not None:
                fixed.append(assigner.only)
        # The key of the destination of all rows, if it does not depend on them.
        self.only = (
            directory_key(*reduce(_join_destinations, fixed, Destination(""))) if len(fixed) == len(assigners) else None
        )

    def route(self, batch: pa.RecordBatch) -> tuple[pa.RecordBatch, list[DirectoryRows]]:
        """Return the rows sorted by destination, and the range of each destination.

        Destinations are in the order of their first rows. Rows of a destination keep their order. A call costs as much
        as a hundred rows, so it should receive many rows.
        """
        if self.only is not None or not batch.num_rows:
            return batch.drop_columns(self._path_columns), in_sequence([self.only or ""], [batch.num_rows])
        assigned = self._keep_assignment(
            reduce(_combine_assignments, [assigner.assign(batch) for assigner in self._assigners])
        )
        batch, codes = self._without_faults(batch, assigned)
        rows = batch.drop_columns(self._path_columns)
        if np.any(codes[1:] < codes[:-1]):
            # A stable sort, so rows of one destination keep their order.
            rows = rows.take(pc.array_sort_indices(from_numpy(codes, pa.int64())))
        counts = np.bincount(codes, minlength=len(assigned.destinations))
        keys = []
        for destination in assigned.destinations:
            keys.append(directory_key(*destination))
        return rows, in_sequence(keys, counts.tolist())

    def _keep_assignment(self, assigned: Assignment) -> Assignment:
        """Replace destinations without valid file names by faults, because publishing them would fail permanently."""
        if self._path_check is None:
            return assigned
        faults = []
        for destination in assigned.destinations:
            faults.append(self._path_check.fault_of(*destination))
        if not any(faults):
            return assigned
        checked = zip(assigned.destinations, faults, strict=True)
        outcomes = [destination if fault is None else f"it {fault}" for destination, fault in checked]
        codes = np.where(assigned.codes < 0, len(outcomes) - 1 - assigned.codes, assigned.codes)
        return assign_by_value([*outcomes, *assigned.faults], codes)

    def _without_faults(self, batch: pa.RecordBatch, assigned: Assignment) -> tuple[pa.RecordBatch, NDArray[np.int64]]:
        if not assigned.faults:
            return batch, assigned.codes
        is_good = assigned.codes >= 0
        faults = []
        for code in assigned.codes[~is_good].tolist():
            faults.append(assigned.faults[-1 - code])
        self._refuse(rows_where(batch, ~is_good), faults)
        return rows_where(batch, is_good), assigned.codes[is_good]


def _join_destinations(outer: Destination, inner: Destination) -> Destination:
    directories = []
    for directory in (outer.directory, inner.directory):
        if directory:
            directories.append(directory)
    return Destination("/".join(directories), inner.stem)


def _combine_assignments(outer: Assignment, inner: Assignment) -> Assignment:
    """Combine the directories of the second assignment below the first.

    If both have faults for a row, the first counts.
    """
    count = len(inner.destinations)
    is_good = (outer.codes >= 0) & (inner.codes >= 0)
    pairs = from_numpy((outer.codes * count + inner.codes)[is_good], pa.int64()).dictionary_encode()
    index_pairs = (divmod(pair, count) for pair in values_of(pairs.dictionary, np.int64).tolist())
    destinations = []
    for above, index in index_pairs:
        destinations.append(_join_destinations(outer.destinations[above], inner.destinations[index]))
    codes = np.where(outer.codes < 0, outer.codes, inner.codes - len(outer.faults))
    codes[is_good] = values_of(pairs.indices, np.int32)
    return Assignment(destinations, codes, [*outer.faults, *inner.faults])
