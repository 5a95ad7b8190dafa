"""The rows that a read requests: some columns of the rows of a snapshot for which a condition is true."""

from __future__ import annotations

import contextlib
import functools
import itertools
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, NamedTuple, TypeAlias

import pyarrow as pa

from ftfile.core.checksum import Decoding
from ftfile.core.errors import ConfigError, CorruptData
from ftfile.formats.api import RowFilter, Wanted
from ftfile.formats.partition_paths import columns_in_path, path_column_values, with_path_columns
from ftfile.formats.parts import read_add
from ftfile.formats.reading.batches import batch_as, batch_of
from ftfile.log.format.layout import directory_of, stem_of
from ftfile.log.read.snapshot import live_columns
from ftfile.read.file_answers import StatisticsReader
from ftfile.rows import kernels as pc
from ftfile.rows.bounds.guarantees import may_be_true
from ftfile.rows.conditions import names_by_number, predicate, text_of, text_of_condition

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
    from typing import Any

    from ftfile.log.format.model import Add
    from ftfile.log.read.snapshot import Snapshot
    from ftfile.storage.api import FileSystem


# The key of a directory, and the key of the encoding of some of its files.
FilePlace: TypeAlias = tuple[str, str]
# The condition on rows, and an expression that is known to be true for them; see `ChosenAdd`.
_Conditions: TypeAlias = "tuple[pc.Expression | None, pc.Expression | None]"

_PIECE_ADDS = 10_000  # adds whose places are compared with a condition in one call
_BATCH_ROWS = 65_536  # rows of a batch whose columns are all in the path


class ChosenAdd(NamedTuple):
    """An add that may contain rows of a selection."""

    add: Add
    where: pc.Expression | None  # the condition on its rows; None if it is true for all of them
    # an expression that is true for all rows of the add; None if there is no such expression
    known: pc.Expression | None
    by_statistics: bool = False  # True if all rows match by the statistics of the file


class Selection:
    """The columns `schema` of the rows of a snapshot for which a condition on the columns `filtered` is true."""

    def __init__(
        self,
        snapshot: Snapshot,
        recorded: pa.Schema,
        *,
        columns: Sequence[str] | None,
        where: object,
        time_zone: str,
        fs: FileSystem | None = None,
    ) -> None:
        """Choose from the rows of a snapshot, whose schema is `recorded`.

        Times without an offset are in `time_zone`. Times that are compared with columns in a path are in the time zone
        of the path. Statistics are read from `fs`, the directory of the log; without it, files are only excluded by
        their partition.

        Raises:
            ConfigError: a column does not exist, or `where` is not a condition on the columns.
        """
        self._snapshot = snapshot
        self._recorded = recorded
        self._asked = where
        self._time_zone = time_zone
        self._fs = fs
        self._conditions: dict[tuple[str, frozenset[str]], pc.Expression | None] = {}
        # The time zone changes values of a condition, but not its columns.
        self._where = self._by_clocks(time_zone, frozenset())
        self.filtered = pa.schema([recorded.field(name) for name in _columns_of(where, self._where, recorded)])
        if columns is None:
            self.schema = recorded
        else:
            self.schema = _select(recorded, columns)
        more = [field for field in self.filtered if field.name not in self.schema.names]
        self._read = pa.schema([*self.schema, *more])

    def adds(self) -> Iterator[ChosenAdd]:
        """Yield the adds that may contain matching rows, in the order of the snapshot; no file is opened."""
        if self._where is None:
            for add in self._snapshot.adds.values():
                yield ChosenAdd(add, None, None)
            return
        conditions_by_place: dict[FilePlace, _Conditions | None] = {}
        for piece in self._list_possible():
            places = {(add.directory_key, add.encoding) for add, is_certain in piece if not is_certain}
            conditions_by_place.update(self._compare(places - conditions_by_place.keys()))
            for add, is_certain in piece:
                if is_certain:
                    yield ChosenAdd(add, None, None, by_statistics=True)
                    continue
                conditions = conditions_by_place[add.directory_key, add.encoding]
                if conditions is not None:
                    yield ChosenAdd(add, *conditions)

    def _list_possible(self) -> Iterator[list[tuple[Add, bool]]]:
        """Yield the adds whose statistics allow matching rows, each with True if all of its rows match, in pieces."""
        adds: Iterator[tuple[Add, bool]]
        if self._fs is None or not len(self.filtered):
            adds = ((add, False) for add in self._snapshot.adds.values())
        else:
            adds = self._statistics().list_possible(self._fs)
        while piece := list(itertools.islice(adds, _PIECE_ADDS)):
            yield piece

    def _statistics(self) -> StatisticsReader:
        return StatisticsReader(
            self._snapshot,
            self._asked,
            recorded=self._recorded,
            filtered=self.filtered,
            time_zone=self._time_zone,
        )

    def possible_files(self) -> Snapshot:
        """Return the snapshot with only the adds whose statistics allow matching rows, without decoding adds."""
        if self._fs is None or not len(self.filtered):
            return self._snapshot
        table, _ = self._statistics().narrow(self._fs)
        return replace(self._snapshot, adds=table)

    def possible_places(self) -> list[FilePlace]:
        """Return the places of adds that may contain matching rows, without decoding adds."""
        conditions_by_place: dict[FilePlace, _Conditions | None] = {}
        for directory_keys, encodings in live_columns(self._snapshot, ("directory", "encoding")):
            places = dict.fromkeys(zip(directory_keys, encodings, strict=True))
            unseen = [place for place in places if place not in conditions_by_place]
            if self._where is None:
                conditions_by_place.update(dict.fromkeys(unseen, (None, None)))
            else:
                conditions_by_place.update(self._compare(unseen))
        return [place for place, conditions in conditions_by_place.items() if conditions is not None]

    def rows(self, fs: FileSystem, chosen: ChosenAdd, *, is_old: bool) -> Iterator[pa.RecordBatch]:
        """Yield the rows of an add. A file without needed columns is not opened. For the errors see `read_add`."""
        add, where = chosen.add, chosen.where
        schema = self._read
        if where is None:
            schema = self.schema
        with Decoding(add.path, "rows with an encoding that the log defines"):
            encoding = self._snapshot.definitions[add.encoding]
            is_of_path = not {*schema.names} - columns_in_path(encoding)
        if is_of_path:
            yield from rows_of_path(add, encoding, schema)
            return
        if where is None:
            yield from read_add(fs, add, encoding, schema, is_old=is_old)
            return
        place = self._place(add.final_path or add.path)
        read = functools.partial(read_add, fs, add, encoding, schema, is_old=is_old)
        for matches in _matching(read, chosen, self.filtered, place):
            for rows in matches.to_batches():
                yield batch_of([rows.column(name) for name in self.schema.names], self.schema, rows.num_rows)

    def _place(self, path: str) -> str:
        """Return the text that names the place where a condition fails."""
        return f"{path!r} of version {self._snapshot.version}"

    def _by_clocks(self, path_zone: str, in_path: frozenset[str]) -> pc.Expression | None:
        """Return the condition. Times without an offset that are compared with columns in a path are in `path_zone`."""
        if (path_zone, in_path) not in self._conditions:
            zones = dict.fromkeys(in_path, path_zone)
            condition = predicate(self._asked, self._recorded, time_zone=self._time_zone, time_zones=zones)
            self._conditions[path_zone, in_path] = condition
        return self._conditions[path_zone, in_path]

    def _compare(self, places: Iterable[FilePlace]) -> dict[FilePlace, _Conditions | None]:
        """Return the condition on the rows of each place and its partition; None if no row of the place matches."""
        by_encoding = defaultdict[str, list[FilePlace]](list)
        for place in places:
            by_encoding[place[1]].append(place)
        conditions: dict[FilePlace, _Conditions | None] = {}
        for key, group in by_encoding.items():
            encoding = self._snapshot.definitions[key]
            in_path = columns_in_path(encoding)
            where = self._by_clocks(encoding["timeZone"], in_path)
            _, schema = _divide_schema(self.filtered, in_path)
            values = [path_values(encoding, directory_key, schema) for directory_key, _ in group]
            if len(schema) == len(self.filtered):
                with _arrow_errors_as_config_errors(where, self.filtered, self._place("partitions")):
                    are_true = _are_true(where, values, schema)
                for place, is_true in zip(group, are_true, strict=True):
                    conditions[place] = (None, None) if is_true else None
                continue
            expressions = [partition_expression(mapping) for mapping in values]
            with _arrow_errors_as_config_errors(where, self.filtered, self._place("partitions")):
                if len(schema):
                    possible = may_be_true(where, expressions, self.filtered)
                else:
                    possible = [True] * len(group)
            for place, expression, may_be in zip(group, expressions, possible, strict=True):
                if may_be:
                    conditions[place] = (where, expression)
                else:
                    conditions[place] = None
        return conditions


@dataclass(frozen=True, slots=True)
class Without:
    """The rows of files of one directory and encoding, except for those that match a condition. Picklable."""

    where: pc.Expression | None  # None if all rows match
    partition: pc.Expression | None  # an expression that is true for all rows of the directory
    filtered: pa.Schema  # the columns of the condition

    def matches(self, fs: FileSystem, add: Add, encoding: dict[str, Any]) -> int:
        """Return the number of rows of an add that match and are left out. For the errors see `Selection.rows`."""
        if self.where is None:
            return add.rows
        chosen = ChosenAdd(add, self.where, self.partition)
        place = repr(add.final_path or add.path)
        read = functools.partial(read_add, fs, add, encoding, self.filtered)
        return sum(rows.num_rows for rows in _matching(read, chosen, self.filtered, place))

    def apply(self, rows: Iterable[tuple[Add, pa.RecordBatch]], encoding: dict[str, Any]) -> Iterator[pa.RecordBatch]:
        """Yield the remaining rows, in their order. The given batches contain the columns that are in the files."""
        in_path = columns_in_path(encoding)
        in_file, of_path = _divide_schema(self.filtered, in_path)
        for add, batch in rows:
            values = path_values(encoding, add.directory_key, of_path)
            columns = batch_as(batch, in_file)
            table = pa.Table.from_batches([with_path_columns(columns, values, self.filtered) if values else columns])
            numbers = pa.array(range(batch.num_rows), pa.int64())
            with _arrow_errors_as_config_errors(self.where, self.filtered, repr(add.final_path)):
                matches = matching_rows(table.append_column("", numbers), self.where).column(len(self.filtered))
            yield batch.filter(pc.invert(pc.is_in(numbers, matches.combine_chunks())))


def _matching(
    read: Callable[..., Iterator[pa.RecordBatch]], chosen: ChosenAdd, filtered: pa.Schema, place: str
) -> Iterator[pa.Table]:
    """Yield the rows of an add for which its condition is true; `read` reads the add."""
    where = chosen.where
    row_filter = Wanted(RowFilter(where, filtered, chosen.known))
    with _arrow_errors_as_config_errors(where, filtered, place):
        try:
            for batch in read(wanted=row_filter):
                yield matching_rows(batch, where)
        except CorruptData:
            # Arrow's Parquet reader also evaluates the filter. If a read without it succeeds, the condition caused the
            # error.
            for batch in read():
                matching_rows(batch, where)
            raise


@contextlib.contextmanager
def _arrow_errors_as_config_errors(where: pc.Expression | None, filtered: pa.Schema, place: str) -> Iterator[None]:
    """Raise a ConfigError if an expression fails on values."""
    try:
        yield
    except pa.ArrowException as error:
        columns = ", ".join(map(repr, filtered.names))
        raise ConfigError(
            f"where: {text_of_condition(where)} fails on values of {columns} in {place}: {error}"
        ) from error


def _divide_schema(schema: pa.Schema, in_path: Collection[str]) -> tuple[pa.Schema, pa.Schema]:
    """Return the columns that are in files, and the columns that are in paths."""
    of_file, of_path = [], []
    for field in schema:
        if field.name in in_path:
            of_path.append(field)
        else:
            of_file.append(field)
    return pa.schema(of_file), pa.schema(of_path)


def partition_expression(values: Mapping[str, pa.Scalar]) -> pc.Expression | None:
    """Return the expression that columns have these values; None without values."""
    expression = None
    for name, value in values.items():
        if value.is_valid:
            is_value = pc.field(name) == value
        else:
            is_value = pc.field(name).is_null()
        expression = is_value if expression is None else expression & is_value
    return expression


def _select(recorded: pa.Schema, columns: Sequence[str]) -> pa.Schema:
    by_name = {name.lower(): name for name in recorded.names}
    names = [by_name.get(name.lower()) for name in columns]
    for name, spelling in zip(columns, names, strict=True):
        if spelling is None:
            whole = by_name.get(name.partition(".")[0].lower())
            if whole is not None and pa.types.is_nested(recorded.field(whole).type):
                raise ConfigError(f"columns: {name!r} is a field of a column: select {whole!r}, which contains it")
            raise ConfigError(f"columns: {_no_such(name, recorded.names)}")
    twice = []
    for place, name in enumerate(columns):
        if names[place] in names[:place]:
            twice.append(name)
    if twice:
        raise ConfigError(f"columns: {', '.join(map(repr, twice))} is named twice")
    return pa.schema([recorded.field(spelling) for spelling in names])


def _columns_of(asked: object, where: pc.Expression | None, recorded: pa.Schema) -> list[str]:
    """Return the columns that an expression names: without any of them, it cannot be evaluated."""
    if where is None:
        return []
    if names_by_number(where):
        raise ConfigError(
            f"where: {text_of_condition(where)} refers to a column by its number: use its name, as in "
            "pyarrow.compute.field('a')"
        )
    # Evaluating an expression without each column takes time with the square of the number of columns.
    if isinstance(asked, Mapping):
        asked_names = {name.lower() for name in asked}
    else:
        asked_names = set()
    names = []
    text = text_of(where)
    for place, name in enumerate(recorded.names):
        if text is not None and name not in text:
            continue
        if name.lower() in asked_names or _needs(where, recorded.remove(place)):
            names.append(name)
    return names


def _needs(where: pc.Expression, rest: pa.Schema) -> bool:
    try:
        rest.empty_table().filter(where)
    except pa.ArrowInvalid:
        return True
    return False


def path_values(encoding: Mapping[str, Any], directory_key: str, schema: pa.Schema) -> dict[str, pa.Scalar]:
    """Return the values of the columns of `schema` that are in the path of a directory; see `path_column_values`."""
    return path_column_values(encoding, directory_of(directory_key), stem_of(directory_key), schema)


def _are_true(where: pc.Expression | None, values: Sequence[Mapping[str, pa.Scalar]], schema: pa.Schema) -> list[bool]:
    """Return for each row of column values if the condition is true. The condition names no other columns."""
    numbers = pa.array(range(len(values)), pa.int64())
    columns = []
    for field in schema:
        columns.append(pa.array([row[field.name].as_py() for row in values], field.type))
    table = pa.Table.from_arrays([*columns, numbers], schema=schema.append(pa.field("", pa.int64())))
    chosen = {*matching_rows(table, where).column(len(columns)).to_pylist()}
    return [number in chosen for number in range(len(values))]


def matching_rows(rows: pa.RecordBatch | pa.Table, where: pc.Expression | None) -> pa.Table:
    """Return the rows for which a condition is true, in their order, without threads."""
    from pyarrow import acero  # noqa: PLC0415 - takes a while

    if isinstance(rows, pa.Table):
        table = rows
    else:
        table = pa.Table.from_batches([rows])
    source = acero.Declaration("table_source", acero.TableSourceNodeOptions(table))
    plan = acero.Declaration.from_sequence([source, acero.Declaration("filter", acero.FilterNodeOptions(where))])
    return plan.to_table(use_threads=False)


def rows_of_path(add: Add, encoding: Mapping[str, Any], schema: pa.Schema) -> Iterator[pa.RecordBatch]:
    """Yield the rows of an add if all requested columns are in its path."""
    values = path_values(encoding, add.directory_key, schema)
    for start in range(0, add.rows, _BATCH_ROWS):
        rows = batch_of([], pa.schema([]), min(_BATCH_ROWS, add.rows - start))
        yield with_path_columns(rows, values, schema) if values else rows


def _no_such(name: str, names: Collection[str]) -> str:
    """Return the text that a column does not exist, with the existing columns."""
    import difflib  # noqa: PLC0415 - for mistakes alone

    spelling = {spelled.lower(): spelled for spelled in names}
    near = [spelling[match] for match in difflib.get_close_matches(name.lower(), spelling, n=3, cutoff=0.6)]
    meant = "."
    if near:
        meant = f": did you mean {' or '.join(map(repr, near))}?"
    return f"there is no column {name!r}{meant} The columns are: {', '.join(names)}"
