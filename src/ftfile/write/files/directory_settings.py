"""The options that choose directories, checked against the schema; and directories by date and time."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from ftfile.core.errors import ConfigError, SchemaError, UserCodeError
from ftfile.formats.partition_paths import check_partition_column
from ftfile.rows.buffers import from_numpy, is_valid, plain, values_of
from ftfile.rows.value_text import DAYS_OF_TEXT, UTC, TimePattern, value_type
from ftfile.rows.zone_clocks import clocks_of, instants_of
from ftfile.write.files.directories import (
    Assignment,
    Destination,
    DirectoryAssigner,
    FileNames,
    PartitionColumn,
    Refuse,
    Router,
    UserAssigner,
    assign_by_value,
)
from ftfile.write.files.naming import path_fault
from ftfile.write.options import resolve_column

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from numpy.typing import NDArray

    from ftfile.core.options import ParsedOptions, Settings
    from ftfile.write.files.naming import PathCheck


_OPTION = "directoryPattern"
_ADVICE = ". A colon separates a column and its pattern, and cannot occur in the name of a directory"
_INSTANT, _CLOCK, _DATE = pa.timestamp("us", "UTC"), pa.timestamp("us"), pa.date32()
_UNITS = (("S", "us"), ("s", "s"), ("m", "m"), ("H", "h"), ("d", "D"), ("M", "M"), ("y", "Y"))  # finest first
_DAY_US = 86_400_000_000


@dataclass(frozen=True, slots=True)
class DirectoryPattern:
    """The option's value, checked."""

    column: str | None  # None for the time at which the batch was planned
    pattern: TimePattern  # of the directories, separated by slashes
    time_zone: str  # whose clocks show instants

    @classmethod
    def parse(cls, text: str, schema: pa.Schema, time_zone: str) -> DirectoryPattern:
        """Read `pattern` or `column:pattern`; a ConfigError where the column has no time, or directories no name."""
        name, colon, pattern_text = text.rpartition(":")
        column = resolve_column(_OPTION, name, schema, _is_time, "a date or timestamp", _ADVICE) if colon else None
        kind = _CLOCK if column is None or pa.types.is_timestamp(schema.field(column).type) else _DATE
        pattern = TimePattern.parse(_OPTION, pattern_text, kind)
        example = pattern.format(from_numpy(np.zeros(1, np.int64 if kind == _CLOCK else np.int32), kind), "UTC")
        fault = path_fault(example[0].as_py())
        if fault is not None:
            raise ConfigError(f"{_OPTION}={text!r} creates directories such as {example[0].as_py()!r}, which {fault}")
        return cls(column, pattern, time_zone)

    @classmethod
    def of_directories(cls, text: str, time_zone: str = "UTC") -> DirectoryPattern:
        """Read a pattern for the times of directories, whichever time they were made of; a `column:` is passed over."""
        return cls.parse(text.rpartition(":")[2], pa.schema([]), time_zone)

    def begins(self, directories: Sequence[str]) -> pa.Array:
        """Return the begin of the time of each, by its own clocks; null where it is of another pattern."""
        return pa.array([self._begin(directory) for directory in directories], _CLOCK)

    def _begin(self, directory: str) -> pa.Scalar | None:
        try:
            return self.pattern.read(pa.array([directory]), _CLOCK, "UTC")[0]
        except ValueError:
            return None

    @property
    def depth(self) -> int:
        """Return the number of directories that it makes."""
        return "".join(piece for piece in self.pattern.pieces if piece[0] == "=").count("/") + 1

    def end_ms(self, directories: str) -> int | None:
        """Return the end of the time that directories stand for, in ms since 1970 UTC; None if of another pattern."""
        begin = self._begin(directories)
        if begin is None:
            return None
        clock = begin.value
        unit = next(unit for letter, unit in _UNITS if any(piece[0] == letter for piece in self.pattern.pieces))
        # In whole numbers: numpy asks of which unit one more is, and takes no unit that is not spelled out.
        following = np.array([np.datetime64(clock, "us")]).astype(f"M8[{unit}]").astype(np.int64) + 1
        last = following.astype(f"M8[{unit}]").astype("M8[us]").astype(np.int64) - 1
        # It is over when its last moment is, the second time where clocks show it twice.
        return int(instants_of(from_numpy(last, _CLOCK), self.time_zone, twice="latest")[0].value + 1) // 1000

    def at(self, planned_ms: int) -> DirectoryAssigner:
        """Return the assigner of a batch that was planned then, in milliseconds since 1970 UTC."""
        if self.column is not None:
            return _ColumnTime(self.column, self.pattern, self.time_zone)
        clock = clocks_of(from_numpy(np.array([planned_ms * 1000]), _INSTANT), self.time_zone)
        return _BatchTime(self.pattern.format(clock, "UTC")[0].as_py())


class _BatchTime(DirectoryAssigner):
    """One directory for all rows of a batch."""

    only: Destination

    def __init__(self, directory: str) -> None:
        self.only = Destination(directory)

    def assign(self, batch: pa.RecordBatch) -> Assignment:
        return Assignment([self.only], np.zeros(batch.num_rows, np.int64))


class _ColumnTime(DirectoryAssigner):
    """Directories by the time in a column of dates or timestamps; rows keep it."""

    def __init__(self, column: str, pattern: TimePattern, time_zone: str) -> None:
        self._column = column
        self._pattern = pattern
        self._time_zone = time_zone

    def assign(self, batch: pa.RecordBatch) -> Assignment:
        """See `DirectoryAssigner.assign`; a time that is null, or needs more digits for its year, is a fault."""
        values = plain(batch.column(self._column))
        clocks = self._clocks(values)
        texts = self._pattern.format(clocks, "UTC").dictionary_encode()
        codes = values_of(texts.indices, np.int32).astype(np.int64)
        outcomes: list[Destination | str] = [Destination(text) for text in texts.dictionary.to_pylist()]
        bad = np.flatnonzero(~is_valid(clocks))
        if len(bad):
            places: dict[str, int] = {}
            words = self._words(values.take(from_numpy(bad, pa.int64())))
            codes[bad] = [len(outcomes) + places.setdefault(word, len(places)) for word in words]
            what = f"{_OPTION}: column {self._column!r} is"
            outcomes += [f"{what} {word}, but directories support only the years 0001 to 9999" for word in places]
        return assign_by_value(outcomes, codes)

    def _clocks(self, values: pa.Array) -> pa.Array:
        """Return dates, or what the clocks show; null where no directory can say it."""
        if pa.types.is_date(values.type):
            days = values_of(values, np.int32)
            return from_numpy(days, _DATE, is_valid(values) & _is_within(days, 1))
        zone = values.type.tz
        clocks = values_of(values.cast(pa.timestamp("us", zone)), np.int64)
        # Some days more, since only the local time matters; much more has no local time.
        is_good = is_valid(values) & _is_within(clocks, _DAY_US, more_days=2)
        if zone is not None:
            instants = from_numpy(np.where(is_good, clocks, 0), _INSTANT)
            clocks = values_of(clocks_of(instants, self._time_zone), np.int64)
        return from_numpy(clocks, _CLOCK, is_good & _is_within(clocks, _DAY_US))

    def _words(self, values: pa.Array) -> list[str]:
        is_date = pa.types.is_date(values.type)
        unit = "days" if is_date else str(values.type.unit)
        numbers = values.cast(pa.int32() if is_date else pa.int64()).to_pylist()
        return ["null" if value is None else f"{value} {unit} since 1970" for value in numbers]


def _is_within(values: NDArray[np.integer], units_of_day: int, more_days: int = 0) -> NDArray[np.bool_]:
    first, last = DAYS_OF_TEXT
    return (values >= (first - more_days) * units_of_day) & (values < (last + 1 + more_days) * units_of_day)


def _is_time(kind: pa.DataType) -> bool:
    return bool(pa.types.is_timestamp(kind) or pa.types.is_date(kind))


@dataclass(frozen=True, slots=True)
class DirectorySettings:
    """How rows are dealt to directories; the directories of each option lie below those of the one before."""

    partition_by: tuple[str, ...]  # columns in their schema's spelling
    pattern: DirectoryPattern | None  # of directories by date and time
    user_class: str | None  # `module:Class`, which gives directories, or paths of files
    user_options: Settings  # of the class: `directoryAssigner.<name>` by name
    file_name: str | None  # the column with paths of files
    time_zone: str  # of timestamps in directory names
    takes_zone: bool  # no option says the zone, and names show instants: it is that of the directory, or of the session
    stem_bytes_max: int  # of the part of a file's name that rows say

    @classmethod
    def from_options(
        cls, parsed: ParsedOptions, schema: pa.Schema, stem_bytes_max: int, asked_zone: str | None
    ) -> DirectorySettings:
        """Return the options, checked against the schema and each other; without a zone that was asked for, UTC."""
        time_zone = asked_zone or UTC
        partition_by = _partition_columns(parsed["partitionBy"], schema)
        named, pattern = parsed["fileNameColumn"], parsed["directoryPattern"]
        if (file_name := named) is not None:
            file_name = resolve_column("fileNameColumn", named, schema, pa.types.is_string, "a string")
        if file_name in partition_by:
            raise ConfigError(
                f"partitionBy and fileNameColumn both name {file_name!r}: a column chooses either directories or files"
            )
        file_columns = [name for name in schema.names if name not in partition_by and name != file_name]
        if not file_columns:
            names = "partitionBy and fileNameColumn name" if file_name else "partitionBy names"
            raise SchemaError(f"{names} every column: at least one column must remain for the files")
        time = None if pattern is None else DirectoryPattern.parse(pattern, schema, time_zone)
        columns = [*partition_by, *([time.column] if time is not None and time.column is not None else [])]
        return cls(
            partition_by=partition_by,
            pattern=time,
            user_class=_user_class(parsed, schema),
            user_options=tuple(sorted(parsed.prefixed("directoryAssigner").items())),
            file_name=file_name,
            time_zone=time_zone,
            takes_zone=asked_zone is None and _show_instants(schema, columns),
            stem_bytes_max=stem_bytes_max,
        )

    def in_zone(self, time_zone: str) -> DirectorySettings:
        """Return the settings with the zone that names are written by."""
        pattern = None if self.pattern is None else replace(self.pattern, time_zone=time_zone)
        return replace(self, pattern=pattern, time_zone=time_zone, takes_zone=False)

    def has_instants(self, schema: pa.Schema) -> bool:
        """Return True if readers find instants in paths, by the clocks of a zone that paths do not say."""
        return _show_instants(schema, self.partition_by)

    @property
    def leaving(self) -> tuple[str, ...]:
        """Return the columns that are not in the files, since the directories say them."""
        return (*self.partition_by, self.file_name) if self.file_name else self.partition_by

    @property
    def is_single(self) -> bool:
        """Return True if all rows go to one directory, the directory itself."""
        return not (self.partition_by or self.pattern or self.user_class or self.file_name)

    def definition(self) -> dict[str, Any]:
        """Return the definition by which readers find these columns in a directory."""
        definition: dict[str, Any] = {"partitionBy": list(self.partition_by)}
        if not self.takes_zone:  # else no rows came to say it, and the next record with rows does
            definition["timeZone"] = self.time_zone
        if self.file_name:
            above = len(self.partition_by) + (self.pattern.depth if self.pattern else 0)
            definition["fileName"] = {"column": self.file_name, "directoriesAbove": above}
        return definition

    def end_ms(self, directory: str) -> int | None:
        """Return the end of the time that a directory stands for, milliseconds since 1970 UTC; None without a time."""
        if self.pattern is None:
            return None
        start = len(self.partition_by)
        return self.pattern.end_ms("/".join(directory.split("/")[start : start + self.pattern.depth]))

    def only_directory(self, planned_ms: int) -> str:
        """Return the directory of all rows of a batch that was planned then; empty where they choose their own."""
        if self.pattern is None or self.leaving or self.user_class is not None:
            return ""
        only = self.pattern.at(planned_ms).only
        return "" if only is None else only.directory

    def router(self, refuse: Refuse, planned_ms: int, path_check: PathCheck | None = None) -> Router:
        """Return the router of one task's rows, for a batch that was planned then; see `Router`."""
        assigners: list[DirectoryAssigner] = [PartitionColumn(column, self.time_zone) for column in self.partition_by]
        if self.pattern is not None:
            assigners.append(self.pattern.at(planned_ms))
        if self.user_class is not None:
            assigners.append(UserAssigner(self.user_class, dict(self.user_options), self.stem_bytes_max))
        if self.file_name is not None:
            assigners.append(FileNames(self.file_name, self.stem_bytes_max))
        return Router(assigners, refuse, path_check)


def _show_instants(schema: pa.Schema, columns: Iterable[str]) -> bool:
    kinds = (value_type(schema.field(column).type) for column in columns)
    return any(pa.types.is_timestamp(kind) and kind.tz is not None for kind in kinds)


def _user_class(parsed: ParsedOptions, schema: pa.Schema) -> str | None:
    """Return the class, which was made once and asked for the directories of no rows."""
    name, options = parsed["directoryAssigner"], parsed.prefixed("directoryAssigner")
    if name is None and options:
        raise ConfigError(
            f"directoryAssigner.{next(iter(options))} is an option for your class, but directoryAssigner names no class"
        )
    if name is not None and parsed["fileNameColumn"] is not None:
        raise ConfigError(
            "directoryAssigner and fileNameColumn both choose the file of a row: let the class return the names, with "
            "names_files = True, and leave out fileNameColumn"
        )
    if name is not None:
        try:
            UserAssigner(name, options).assign(pa.RecordBatch.from_pylist([], schema=schema))
        except UserCodeError as error:
            raise ConfigError(f"in a test with no rows, {error}") from error
    return None if name is None else str(name)


def _partition_columns(names: tuple[str, ...], schema: pa.Schema) -> tuple[str, ...]:
    spelling = {name.lower(): name for name in schema.names}
    unknown = [name for name in names if name.lower() not in spelling]
    if unknown:
        raise ConfigError(
            f"partitionBy names columns that do not exist: {', '.join(unknown)}; the columns are "
            f"{', '.join(schema.names)}"
        )
    columns = tuple(spelling[name.lower()] for name in names)
    for column in columns:
        check_partition_column(schema.field(column))
    return columns
