"""The options that choose directories, including directories by date and time, and their checks against the schema."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from ftfile.core.errors import ConfigError, SchemaError, UserCodeError
from ftfile.formats.partition_paths import check_partition_column
from ftfile.rows.buffers import from_numpy, is_valid, to_plain, values_of
from ftfile.rows.value_text import DAYS_OF_TEXT, UTC, TimePattern, value_type
from ftfile.rows.zone_clocks import clocks_of, instants_of
from ftfile.writing.files.directories import (
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
from ftfile.writing.files.naming import path_fault
from ftfile.writing.options import resolve_column

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from numpy.typing import NDArray

    from ftfile.core.options.parsing import Settings
    from ftfile.core.options.typed import SinkOptions
    from ftfile.writing.files.naming import PathCheck


_OPTION = "directoryPattern"
_ADVICE = ". A colon separates a column and its pattern, and cannot occur in the name of a directory"
_INSTANT, _CLOCK, _DATE = pa.timestamp("us", "UTC"), pa.timestamp("us"), pa.date32()
_UNITS = (("S", "us"), ("s", "s"), ("m", "m"), ("H", "h"), ("d", "D"), ("M", "M"), ("y", "Y"))  # finest first
_DAY_US = 86_400_000_000


@dataclass(frozen=True, slots=True)
class DirectoryPattern:
    """The checked value of `directoryPattern`."""

    column: str | None  # None for the planning time of the batch
    pattern: TimePattern  # of directory names, separated by slashes
    time_zone: str  # for the conversion of instants to local times

    @classmethod
    def parse(cls, text: str, schema: pa.Schema, time_zone: str) -> DirectoryPattern:
        """Parse `pattern` or `column:pattern`.

        Raises:
            ConfigError: the column contains no time, or the pattern creates an invalid directory name.
        """
        name, colon, pattern_text = text.rpartition(":")
        column = None
        if colon:
            column = resolve_column(
                _OPTION, name, schema=schema, is_right=_is_time, needed="a date or timestamp", advice=_ADVICE
            )
        kind = _DATE
        if column is None or pa.types.is_timestamp(schema.field(column).type):
            kind = _CLOCK
        pattern = TimePattern.parse(_OPTION, pattern_text, kind)
        number_type = np.int64 if kind == _CLOCK else np.int32
        epoch = from_numpy(np.zeros(1, number_type), kind)
        example = pattern.format(epoch, "UTC")[0].as_py()
        fault = path_fault(example)
        if fault is not None:
            raise ConfigError(f"{_OPTION}={text!r} creates directories such as {example!r}, which {fault}")
        return cls(column, pattern, time_zone)

    @classmethod
    def of_directories(cls, text: str, time_zone: str = "UTC") -> DirectoryPattern:
        """Parse the pattern of existing directories, without their schema. A prefix `column:` is ignored."""
        return cls.parse(text.rpartition(":")[2], pa.schema([]), time_zone)

    def begins(self, directories: Sequence[str]) -> pa.Array:
        """Return the local time at which each directory begins; null if the directory does not match the pattern."""
        return pa.array([self._begin(directory) for directory in directories], _CLOCK)

    def _begin(self, directory: str) -> pa.Scalar | None:
        try:
            return self.pattern.read(pa.array([directory]), _CLOCK, "UTC")[0]
        except ValueError:
            return None

    @property
    def depth(self) -> int:
        """Return the number of directory levels of the pattern."""
        slashes = 0
        for piece in self.pattern.pieces:
            if piece[0] == "=":
                slashes += piece.count("/")
        return slashes + 1

    def end_ms(self, directories: str) -> int | None:
        """Return the time at which directories end, in ms since 1970 UTC; None if they do not match the pattern."""
        begin = self._begin(directories)
        if begin is None:
            return None
        clock = np.array([np.datetime64(begin.value, "us")])
        letters = {piece[0] for piece in self.pattern.pieces}
        unit = next(unit for letter, unit in _UNITS if letter in letters)
        # Computed with integers, because numpy adds 1 only in a given unit and requires a literal unit.
        next_unit = clock.astype(f"M8[{unit}]").astype(np.int64) + 1
        last_us = next_unit.astype(f"M8[{unit}]").astype("M8[us]").astype(np.int64) - 1
        # If the last local time occurs twice, the directory ends after the second occurrence.
        last_instant = instants_of(from_numpy(last_us, _CLOCK), self.time_zone, twice="latest")[0]
        return int(last_instant.value + 1) // 1000

    def at(self, planned_ms: int) -> DirectoryAssigner:
        """Return the assigner for a batch with this planning time, in milliseconds since 1970 UTC."""
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
    """Directories by the time in a column of dates or timestamps. The files also contain the column."""

    def __init__(self, column: str, pattern: TimePattern, time_zone: str) -> None:
        self._column = column
        self._pattern = pattern
        self._time_zone = time_zone

    def assign(self, batch: pa.RecordBatch) -> Assignment:
        """See `DirectoryAssigner.assign`. A null time and a year with more than four digits are faults."""
        values = to_plain(batch.column(self._column))
        clocks = self._clocks(values)
        texts = self._pattern.format(clocks, "UTC").dictionary_encode()
        codes = values_of(texts.indices, np.int32).astype(np.int64)
        outcomes: list[Destination | str] = []
        for text in texts.dictionary.to_pylist():
            outcomes.append(Destination(text))
        bad = np.flatnonzero(~is_valid(clocks))
        if len(bad):
            # Equal bad values have one code and one message.
            code_of_text: dict[str, int] = {}
            bad_codes = []
            for text in self._bad_texts(values.take(from_numpy(bad, pa.int64()))):
                bad_codes.append(code_of_text.setdefault(text, len(outcomes) + len(code_of_text)))
            codes[bad] = bad_codes
            column = f"{_OPTION}: column {self._column!r} is"
            for text in code_of_text:
                outcomes.append(f"{column} {text}, but directories support only the years 0001 to 9999")
        return assign_by_value(outcomes, codes)

    def _clocks(self, values: pa.Array) -> pa.Array:
        """Return dates or local times, and null for values that a directory name cannot represent."""
        if pa.types.is_date(values.type):
            days = values_of(values, np.int32)
            return from_numpy(days, _DATE, is_valid(values) & _is_within(days, 1))
        zone = values.type.tz
        clocks = values_of(values.cast(pa.timestamp("us", zone)), np.int64)
        # The conversion to local time shifts values, so two more days are allowed at each end of the range. Values
        # outside of this range are not converted, because they may have no local time.
        is_good = is_valid(values) & _is_within(clocks, _DAY_US, more_days=2)
        if zone is not None:
            instants = from_numpy(np.where(is_good, clocks, 0), _INSTANT)
            clocks = values_of(clocks_of(instants, self._time_zone), np.int64)
        return from_numpy(clocks, _CLOCK, is_good & _is_within(clocks, _DAY_US))

    def _bad_texts(self, values: pa.Array) -> list[str]:
        """Return the texts of bad values for messages."""
        is_date = pa.types.is_date(values.type)
        if is_date:
            unit = "days"
        else:
            unit = str(values.type.unit)
        numbers = values.cast(pa.int32() if is_date else pa.int64()).to_pylist()
        texts = []
        for number in numbers:
            texts.append("null" if number is None else f"{number} {unit} since 1970")
        return texts


def _is_within(values: NDArray[np.integer], units_of_day: int, more_days: int = 0) -> NDArray[np.bool_]:
    """Return True for times in the years 0001 to 9999, or up to `more_days` before or after them."""
    first_day, last_day = DAYS_OF_TEXT
    start = (first_day - more_days) * units_of_day
    end = (last_day + 1 + more_days) * units_of_day
    return (values >= start) & (values < end)


def _is_time(kind: pa.DataType) -> bool:
    return bool(pa.types.is_timestamp(kind) or pa.types.is_date(kind))


@dataclass(frozen=True, slots=True, kw_only=True)
class DirectorySettings:
    """The assignment of rows to directories. The directories of each option are below those of the previous option."""

    partition_by: tuple[str, ...]  # with the spelling of the schema
    pattern: DirectoryPattern | None  # of directories by date and time
    user_class: str | None  # `module:Class`, which returns directories or paths of files
    user_options: Settings  # options of the class, `directoryAssigner.<name>`, by name
    file_name: str | None  # the column with paths of files
    time_zone: str  # of timestamps in directory names
    # True if no option sets the zone and names contain instants: the zone of the directory or of the session is used
    takes_zone: bool
    stem_bytes_max: int  # the maximum length of the part of a file name that rows set

    @classmethod
    def from_options(
        cls, parsed: SinkOptions, schema: pa.Schema, stem_bytes_max: int, asked_zone: str | None
    ) -> DirectorySettings:
        """Return the settings of options, after checking them. `asked_zone` is None for the default time zone, UTC."""
        time_zone = asked_zone or UTC
        partition_by = _partition_columns(parsed.partition_by, schema)
        named, pattern = parsed.file_name_column, parsed.directory_pattern
        file_name: str | None = None
        if named is not None:
            file_name = resolve_column(
                "fileNameColumn", named, schema=schema, is_right=pa.types.is_string, needed="a string"
            )
        if file_name in partition_by:
            raise ConfigError(
                f"partitionBy and fileNameColumn both name {file_name!r}: a column chooses either directories or files"
            )
        if not set(schema.names).difference(partition_by, [file_name]):
            names = "partitionBy names"
            if file_name:
                names = "partitionBy and fileNameColumn name"
            raise SchemaError(f"{names} every column: at least one column must remain for the files")
        if pattern is None:
            time = None
        else:
            time = DirectoryPattern.parse(pattern, schema, time_zone)
        columns = list(partition_by)
        if time is not None and time.column is not None:
            columns.append(time.column)
        return cls(
            partition_by=partition_by,
            pattern=time,
            user_class=_user_class(parsed, schema),
            user_options=tuple(sorted(parsed.options_with_prefix("directoryAssigner").items())),
            file_name=file_name,
            time_zone=time_zone,
            takes_zone=asked_zone is None and _contain_instants(schema, columns),
            stem_bytes_max=stem_bytes_max,
        )

    def in_zone(self, time_zone: str) -> DirectorySettings:
        """Return the settings with this time zone for names."""
        if self.pattern is None:
            pattern = None
        else:
            pattern = replace(self.pattern, time_zone=time_zone)
        return replace(self, pattern=pattern, time_zone=time_zone, takes_zone=False)

    def has_instants(self, schema: pa.Schema) -> bool:
        """Return True if paths contain instants as local times, without their time zone."""
        return _contain_instants(schema, self.partition_by)

    @property
    def path_columns(self) -> tuple[str, ...]:
        """Return the columns whose values are in the paths of files instead of their content."""
        if self.file_name:
            return (*self.partition_by, self.file_name)
        return self.partition_by

    @property
    def is_single(self) -> bool:
        """Return True if all rows belong to the root directory."""
        return not (self.partition_by or self.pattern or self.user_class or self.file_name)

    def definition(self) -> dict[str, Any]:
        """Return the definition with which readers derive these columns from a directory name."""
        definition: dict[str, Any] = {"partitionBy": list(self.partition_by)}
        # If no zone is set yet, the batch has no rows. The next record with rows contains the zone.
        if not self.takes_zone:
            definition["timeZone"] = self.time_zone
        if self.file_name:
            directories_above = len(self.partition_by)
            if self.pattern:
                directories_above += self.pattern.depth
            definition["fileName"] = {"column": self.file_name, "directoriesAbove": directories_above}
        return definition

    def end_ms(self, directory: str) -> int | None:
        """Return the time at which a directory ends, in ms since 1970 UTC; None if its name contains no time."""
        if self.pattern is None:
            return None
        start = len(self.partition_by)
        names = directory.split("/")[start : start + self.pattern.depth]
        return self.pattern.end_ms("/".join(names))

    def only_directory(self, planned_ms: int) -> str:
        """Return the directory of all rows of a batch with this planning time; empty if rows choose directories."""
        if self.pattern is None or self.path_columns or self.user_class is not None:
            return ""
        only = self.pattern.at(planned_ms).only
        if only is None:
            return ""
        return only.directory

    def router(self, refuse: Refuse, planned_ms: int, path_check: PathCheck | None = None) -> Router:
        """Return the router for the rows of one task, for a batch with this planning time; see `Router`."""
        assigners: list[DirectoryAssigner] = []
        for column in self.partition_by:
            assigners.append(PartitionColumn(column, self.time_zone))
        if self.pattern is not None:
            assigners.append(self.pattern.at(planned_ms))
        if self.user_class is not None:
            assigners.append(UserAssigner(self.user_class, dict(self.user_options), self.stem_bytes_max))
        if self.file_name is not None:
            assigners.append(FileNames(self.file_name, self.stem_bytes_max))
        return Router(assigners, refuse, path_check)


def _contain_instants(schema: pa.Schema, columns: Iterable[str]) -> bool:
    """Return True if one of the columns contains instants, whose local times depend on the time zone."""
    kinds = (value_type(schema.field(column).type) for column in columns)
    return any(pa.types.is_timestamp(kind) and kind.tz is not None for kind in kinds)


def _user_class(parsed: SinkOptions, schema: pa.Schema) -> str | None:
    """Return the name of the user's class, after an instance of it has assigned directories to an empty batch."""
    name, options = parsed.directory_assigner, parsed.options_with_prefix("directoryAssigner")
    if name is None:
        if not options:
            return None
        raise ConfigError(
            f"directoryAssigner.{next(iter(options))} is an option for your class, but directoryAssigner names no class"
        )
    if parsed.file_name_column is not None:
        raise ConfigError(
            "directoryAssigner and fileNameColumn both choose the file of a row: let the class return the names, with "
            "names_files = True, and leave out fileNameColumn"
        )
    try:
        UserAssigner(name, options).assign(pa.RecordBatch.from_pylist([], schema=schema))
    except UserCodeError as error:
        raise ConfigError(f"in a test with no rows, {error}") from error
    return str(name)


def _partition_columns(names: tuple[str, ...], schema: pa.Schema) -> tuple[str, ...]:
    """Return the columns of `partitionBy` with the spelling of the schema; raise ConfigError for an unsuitable one."""
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
