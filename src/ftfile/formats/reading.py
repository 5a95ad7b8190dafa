"""Reading files back: rows in the schema wanted, the text of dates and timestamps, errors that name the file."""

from __future__ import annotations

import atexit
import os
import resource
import sys
import threading
import weakref
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import TYPE_CHECKING, Any, BinaryIO

import pyarrow as pa

from ftfile.core.context import is_worker
from ftfile.core.errors import ConfigError, CorruptData, SchemaError
from ftfile.core.options.table import DEFAULTS
from ftfile.rows.buffers import rebuild
from ftfile.rows.spark_types import is_variant
from ftfile.rows.value_text import TimePattern
from ftfile.rows.zone_clocks import is_zone
from ftfile.storage.calls import visited

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
    from typing import TypeAlias

    Cast: TypeAlias = Callable[[pa.Array, pa.DataType], pa.Array]

__all__ = (
    "LentFile",
    "TimeFormats",
    "batch_as",
    "batch_of",
    "bounded",
    "check_one_text_column",
    "check_problems",
    "check_variants",
    "columns_within",
    "corrupt",
    "end_all",
    "reading_errors",
)


# Of rows that are decoded at once, beyond what the process has: a constant, and a multiple of what is stored.
MEMORY_BYTES, MEMORY_RATIO = 768 << 20, 4
_STATM_BYTES, _STATM_DATA = 256, 5  # the place of data and stack, in pages


def corrupt(file: BinaryIO, expected: str, actual: object) -> CorruptData:
    """Return the error for a file that is not what a format writes."""
    return CorruptData(str(getattr(file, "name", "")), expected, str(actual))


@contextmanager
def reading_errors(file: BinaryIO, expected: str) -> Iterator[None]:
    """Raise Arrow's errors within the block as `CorruptData`; those about bytes are OSErrors.

    A `MemoryError`, which Arrow's are too, stays one: it tells of the process, not of the file.
    """
    try:
        yield
    except MemoryError:
        raise
    except (pa.ArrowException, OSError, UnicodeDecodeError) as error:  # also names of columns that are no text
        raise corrupt(file, expected, error) from error


class LentFile:
    """A file that pyarrow reads, for some formats by threads of its own, which read ahead of what was asked for.

    After the block nothing reads the file: its owner may read it from elsewhere, close it, or end the process.
    """

    closed = False

    def __init__(self, file: BinaryIO) -> None:
        self._file = file
        self.is_lent = True
        # A thread takes back what it reads itself where garbage is collected meanwhile.
        self._reading = threading.RLock()
        self._process = os.getpid()
        _lent.add(weakref.ref(self, _lent.discard))

    def __enter__(self) -> None:
        """Lend the file until the end of the block."""

    def __exit__(self, *_: object) -> None:
        self.take_back()

    def read(self, size: int = -1) -> bytes:
        with visited(), self._reading:
            # An exception would be freed by the thread, at any later time.
            return self._file.read(size) if self.is_lent else b""

    def seek(self, offset: int, whence: int = os.SEEK_SET) -> int:
        with visited(), self._reading:
            return self._file.seek(offset, whence) if self.is_lent else 0

    def tell(self) -> int:
        with visited(), self._reading:
            return self._file.tell() if self.is_lent else 0

    def close(self) -> None:
        """Leave the file open; its owner closes it."""

    def take_back(self) -> None:
        """End the file for its readers, once the read that runs has ended."""
        if os.getpid() == self._process:  # threads do not survive a fork
            with self._reading:
                self.end()

    def end(self) -> None:
        """End the file for its readers after the read that runs."""
        self.is_lent = False


_lent: set[weakref.ref[LentFile]] = set()


@atexit.register
def end_all() -> None:
    """End the files of readers that nobody has closed: the process waits a while for what they read."""
    for reference in _lent.copy():
        if (file := reference()) is not None:
            file.end()


class _ProcessLimit:
    """The limit of a process's memory while decoders run, in however many threads."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._running = 0
        self._before = (resource.RLIM_INFINITY, resource.RLIM_INFINITY)

    def begin(self, bytes_max: int) -> None:
        with self._lock:
            soft, hard = resource.getrlimit(resource.RLIMIT_DATA)
            if not self._running:
                self._before = soft, hard
            limits = [limit for limit in self._before if limit != resource.RLIM_INFINITY]
            limit = min([_data_bytes() + bytes_max, *limits])
            # Where another decoder runs, both have what is theirs.
            resource.setrlimit(resource.RLIMIT_DATA, (max(limit, soft) if self._running else limit, hard))
            self._running += 1

    def end(self) -> None:
        with self._lock:
            self._running -= 1
            if not self._running:
                resource.setrlimit(resource.RLIMIT_DATA, self._before)


_process_limit = _ProcessLimit()


def _data_bytes() -> int:
    """Return the memory of this process that counts for `RLIMIT_DATA`, or a little more."""
    file = os.open("/proc/self/statm", os.O_RDONLY)  # faster than `open`: it is read for each batch
    try:
        return int(os.read(file, _STATM_BYTES).split()[_STATM_DATA]) * resource.getpagesize()
    finally:
        os.close(file)


@contextmanager
def _memory_limit(bytes_max: int) -> Iterator[None]:
    """Let the block take at most so much more memory than the process has: what takes more raises a `MemoryError`.

    Libraries decode what a file declares, and have no limit of their own. Only Linux has one for a process, and only a
    worker of Spark's has one: in a user's program, other threads would meet it, too.
    """
    if sys.platform != "linux" or not is_worker():
        yield
        return
    _process_limit.begin(bytes_max)
    try:
        yield
    finally:
        _process_limit.end()


def bounded(batches: Iterator[pa.RecordBatch], stored_bytes: int, path: str) -> Iterator[pa.RecordBatch]:
    """Yield the rows of a file of `stored_bytes`, each batch decoded within a bound of memory.

    Raises:
        CorruptData: a batch takes more than `MEMORY_BYTES` and `MEMORY_RATIO` times what is stored, in a worker of
            Spark's; elsewhere, more than there is.
    """
    bytes_max = MEMORY_BYTES + MEMORY_RATIO * stored_bytes
    while True:
        try:
            with _memory_limit(bytes_max):
                batch = next(batches, None)
        except MemoryError as error:
            within = f"{bytes_max} bytes of memory" if is_worker() else "the memory of this process"
            expected = f"batches of rows that can be decoded within {within}"
            raise CorruptData(path, expected, f"more: {error}") from error
        if batch is None:
            return
        yield batch


def batch_of(columns: Sequence[pa.Array], schema: pa.Schema, rows: int) -> pa.RecordBatch:
    """Return a batch that knows its number of rows even if it has no columns."""
    if columns:
        return pa.RecordBatch.from_arrays(columns, schema=schema)
    return pa.RecordBatch.from_arrays([pa.nulls(rows)], names=["none"]).select([])


def batch_as(batch: pa.RecordBatch, schema: pa.Schema, cast: Cast | None = None) -> pa.RecordBatch:
    """Return the rows of a batch as `schema`: columns matched by name and cast, missing ones null.

    Values are cast by `cast`, by default without a loss.

    Raises:
        pyarrow.ArrowException: a value does not fit its type.
    """
    present = set(batch.schema.names)
    columns = [
        rebuild(batch.column(column.name), column.type, cast or _cast)
        if column.name in present
        else pa.nulls(batch.num_rows, column.type)
        for column in schema
    ]
    return batch_of(columns, schema, batch.num_rows)


def _cast(array: pa.Array, kind: pa.DataType) -> pa.Array:
    if pa.types.is_decimal(array.type) and pa.types.is_floating(kind):
        # Arrow's own cast errs in the last digit; of text it takes the nearest number.
        array = array.cast(pa.string())
    return array.cast(kind)


def columns_within(fields: Iterable[pa.Field], prefix: str = "") -> Iterator[tuple[str, pa.DataType]]:
    """Yield path and type of every column and of every part of nested ones, as in `a` and `a.element.b`."""
    for field in fields:
        path, kind = prefix + field.name, field.type
        yield path, kind
        if pa.types.is_struct(kind):
            yield from columns_within(kind, f"{path}.")
        elif pa.types.is_list(kind):
            yield from columns_within([pa.field("element", kind.value_type)], f"{path}.")
        elif pa.types.is_map(kind):
            yield from columns_within([pa.field("key", kind.key_type), pa.field("value", kind.item_type)], f"{path}.")


def check_one_text_column(format_name: str, schema: pa.Schema, advice: str, cast: str) -> None:
    """Raise `SchemaError` unless a schema is one column of strings or binary values."""
    if len(schema) != 1:
        check_problems(
            format_name, [f"columns {', '.join(schema.names)}: {format_name} has exactly one column; {advice}"]
        )
    name, kind = schema.names[0], schema.types[0]
    if not (pa.types.is_string(kind) or pa.types.is_binary(kind)):
        check_problems(format_name, [f"column `{name}`: {kind}; use cast(`{name}` AS {cast})"])


def check_variants(format_name: str, schema: pa.Schema, fault: str = "") -> None:
    """Raise `SchemaError` for columns of VARIANT, by default because the format does not have the type."""
    what = fault or f"VARIANT, which {format_name} does not support; use to_json(column)"
    check_problems(
        format_name,
        (f"column `{path}`: {what}, or parquet" for path, kind in columns_within(schema) if is_variant(kind)),
    )


def check_problems(format_name: str, problems: Iterable[str]) -> None:
    """Raise `SchemaError` with the reasons why a format cannot hold a schema, if there are any."""
    if lines := list(problems):
        raise SchemaError(f"fileFormat={format_name} cannot hold this schema:\n  " + "\n  ".join(lines))


_OPTIONS = {
    "timestamp": "timestampFormat",
    "timestamp_ntz": "timestampNTZFormat",
    "date": "dateFormat",
    "zone": "timeZone",
}
_INSTANT, _WALL_CLOCK, _DATE = pa.timestamp("us", tz="UTC"), pa.timestamp("us"), pa.date32()
_UTC_NAMES = ("UTC", "Z", "GMT", "Etc/UTC")

_parsed = lru_cache(maxsize=64)(TimePattern.parse)  # each plan and each task of a query asks for the same ones


@dataclass(frozen=True, slots=True)
class TimeFormats:
    """Patterns, ISO 8601 with microseconds by default, and the zone whose clocks show TIMESTAMP columns."""

    timestamp: str
    timestamp_ntz: str
    date: str
    zone: str

    @classmethod
    def from_options(cls, options: Mapping[str, Any]) -> TimeFormats:
        """Return the formats of options; `ConfigError` if a pattern or a time zone is unknown."""
        formats = cls(**{name: options.get(option, DEFAULTS[option]) for name, option in _OPTIONS.items()})
        if formats.zone in _UTC_NAMES:
            formats = replace(formats, zone="UTC")
        for kind in (_INSTANT, _WALL_CLOCK, _DATE):
            formats.pattern(kind)
        if not is_zone(formats.zone):
            advice = "write it as in `Europe/Berlin`, `+01:00` or `UTC`"
            raise ConfigError(f"option timeZone={formats.zone!r} is not understood; {advice}")
        return formats

    def definition(self) -> dict[str, Any]:
        """Return the options that differ from the defaults."""
        options = {option: getattr(self, name) for name, option in _OPTIONS.items()}
        return {option: value for option, value in options.items() if value != DEFAULTS[option]}

    def pattern(self, kind: pa.DataType) -> TimePattern:
        """Return the pattern of a date or timestamp type."""
        name = self._name(kind)
        return _parsed(_OPTIONS[name], getattr(self, name), kind)

    def is_iso(self, kind: pa.DataType) -> bool:
        """Return True for the default pattern, which every parser reads."""
        name = self._name(kind)
        return bool(getattr(self, name) == DEFAULTS[_OPTIONS[name]])

    def is_default(self, kind: pa.DataType) -> bool:
        """Return True for the default pattern, and for instants in UTC."""
        return self.is_iso(kind) and (self.zone == "UTC" or self._name(kind) != "timestamp")

    def _name(self, kind: pa.DataType) -> str:
        if pa.types.is_date(kind):
            return "date"
        return "timestamp" if kind.tz else "timestamp_ntz"
