"""Paths of partitions like Spark's and Hive's, `column=value/column=value`, and their selection by a condition.

The text of a value is Spark's cast to string, escaped like in its `ExternalCatalogUtils.escapePathName`. Some names
that Spark cannot create, or that readers skip or read as null, are escaped once more, which readers undo: a string that
equals the name of null, a value ending in `._COPYING_`, a column beginning with a dot or an underscore, and a string
with NUL. The empty string has no name: Spark writes it to the directory of null, from which readers read null.
"""

from __future__ import annotations

import functools
import re
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from ftfile.core.checksum import Decoding
from ftfile.core.errors import CorruptData, EncodingError, SchemaError, SourceError
from ftfile.rows.cast_text import cast_text
from ftfile.rows.conditions import predicate
from ftfile.rows.value_text import UTC, has_text, value_of, value_texts, value_type

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    import pyarrow.compute as pc

    Place = tuple[str, str]  # the path of a directory, and the time zone of the timestamps in it


NULL_NAME = "__HIVE_DEFAULT_PARTITION__"

_NAME_BYTES_MAX = 255
_HIDING = "._"
_HIDDEN_SUFFIX = "._COPYING_"
_ESCAPES = {code: f"%{code:02X}" for code in [*range(0x20), 0x7F, *b"\"#%'*/:=?\\{[]^"]}
_ESCAPE = re.compile("%([0-9A-Fa-f]{2})")
_BYTES = re.compile("(?:%[89A-Fa-f][0-9A-Fa-f])+")  # of characters beyond ASCII


def check_partition_column(field: pa.Field) -> None:
    """Raise `SchemaError` if a column cannot be part of a path."""
    if not field.name:
        raise SchemaError("partitionBy: a column without a name cannot be part of a path; name the column")
    if not has_text(value_type(field.type)):
        raise SchemaError(
            f"partitionBy: column {field.name!r} of type {field.type} cannot be part of a path; use a boolean, "
            "number, decimal, string, date or timestamp, such as a column derived from this one"
        )


def partition_schema(schema: pa.Schema, columns: Iterable[str]) -> pa.Schema:
    """Return the partition columns, in the order of their directories."""
    return pa.schema([schema.field(column) for column in columns])


def partition_names(column: str, values: pa.Array, time_zone: str = UTC) -> list[str]:
    """Return the directory names `column=value` of distinct values or null; `EncodingError` if a value has no name."""
    values = values.cast(value_type(values.type))
    try:
        texts = iter(value_texts(values.drop_null(), time_zone))
    except ValueError as error:
        raise EncodingError(
            f"partitionBy: column {column!r} contains a value that cannot be part of a path: {error}"
        ) from error
    prefix = _escaped_column(column) + "="
    names = []
    for present in values.is_valid().to_pylist():
        name = prefix + (_escaped_value(column, next(texts)) if present else NULL_NAME)
        if (size_bytes := len(name.encode())) > _NAME_BYTES_MAX:
            raise EncodingError(
                f"partitionBy: a value of column {column!r} gives a directory name of {size_bytes} bytes, and a file "
                f"system allows {_NAME_BYTES_MAX}: {name[:80]!r}...; shorten the value, or use another column"
            )
        names.append(name)
    return names


def parse_partition_path(path: str, schema: pa.Schema, time_zone: str = UTC) -> dict[str, pa.Scalar]:
    """Return the values of the columns of `schema` from a path; `CorruptData` if it lacks one."""
    texts = _texts(path)
    return {field.name: _parse(path, texts.get(field.name, ""), field, time_zone) for field in schema}


@functools.lru_cache(maxsize=1024)  # a directory has many files
def columns_of_directory(directory: str) -> tuple[str, ...]:
    """Return the columns in the directory names of a path, such as `a=1/b=2`."""
    return tuple(_unescape(name.partition("=")[0]) for name in directory.split("/") if name.find("=") > 0)


def without_escaped_bytes(directory: str) -> str:
    """Return a path in which escaped bytes of UTF-8 in the names of partitions are characters.

    DuckDB, Polars and pyarrow write and read `p=%C3%A9` for `é`. Spark and Hive write `p=é`, and read each escape as
    one character, here `Ã©`. All read `p=é` as `é`.

    Raises:
        ValueError: the bytes are not UTF-8.
    """
    names = []
    for name in directory.split("/"):
        names.append(_BYTES.sub(_decoded_bytes, name) if name.find("=") > 0 else name)
    return "/".join(names)


def _decoded_bytes(escapes: re.Match[str]) -> str:
    return bytes.fromhex(escapes[0].replace("%", "")).decode()


def rescaled_columns(directory: str, schema: pa.Schema) -> list[str]:
    """Return the decimal columns whose texts in a path have another scale, as written by other programs.

    Spark interprets the digits of a text with the scale of the type, and so moves the point.
    """
    columns = []
    scales = {field.name: field.type.scale for field in schema if pa.types.is_decimal(field.type)}
    for part in directory.split("/"):
        name, _, text = part.partition("=")
        column = _unescape(name)  # not looked up by Arrow, since it may not be UTF-8
        if column in scales and text != NULL_NAME and len(text.partition(".")[2]) != scales[column]:
            columns.append(column)
    return columns


def columns_in_path(encoding: Mapping[str, Any]) -> frozenset[str]:
    """Return the columns that files of an encoding do not contain, given its definition in the log."""
    with Decoding("_ftfile/log", "the columns of directories"):
        file_name = encoding.get("fileName")
        return frozenset([*encoding["partitionBy"], *([file_name["column"]] if file_name else [])])


def path_column_values(
    encoding: Mapping[str, Any], directory: str, stem: str, schema: pa.Schema
) -> dict[str, pa.Scalar]:
    """Return the values of the columns of `schema` that are in the path of a directory.

    `stem` is the beginning of its file names, if columns determine it; `encoding` is from the log.
    """
    partition = pa.schema([field for field in schema if field.name in encoding["partitionBy"]])
    if len(partition):
        values = parse_partition_path(directory, partition, encoding["timeZone"])
    else:
        values = {}
    file_name = encoding.get("fileName")
    if file_name and file_name["column"] in schema.names:
        if directory:
            below = directory.split("/")[file_name["directoriesAbove"] :]
        else:
            below = []
        values[file_name["column"]] = pa.scalar("/".join([*below, stem]), schema.field(file_name["column"]).type)
    return values


def with_path_columns(batch: pa.RecordBatch, values: Mapping[str, pa.Scalar], schema: pa.Schema) -> pa.RecordBatch:
    """Return rows of a file with the columns of its path, in the order of `schema`."""
    columns: list[pa.Array] = []
    for name in schema.names:
        if name in values:
            columns.append(pa.repeat(values[name], batch.num_rows))
        else:
            columns.append(batch.column(name))
    return pa.RecordBatch.from_arrays(columns, schema=schema)


def _parse(path: str, text: str, field: pa.Field, time_zone: str) -> pa.Scalar:
    kind = value_type(field.type)
    if text == NULL_NAME:
        return pa.scalar(None, kind)
    expected = f"a value of column {field.name!r} of type {kind}"
    if not text:
        raise CorruptData(path, expected, "none")
    try:
        return value_of(_unescape(text), kind, time_zone)
    except ValueError as error:
        raise CorruptData(path, expected, f"{text!r} ({error})") from error


def values_of_path(path: str, schema: pa.Schema, time_zone: str) -> dict[str, pa.Scalar]:
    """Return the values of columns from a path of another program, cast like in Spark.

    Raises:
        SourceError: a value does not have the type of its column, or two directories name the same column.
    """
    texts = _texts(path)
    names = [name.lower() for name in columns_of_directory(path)]
    for field in schema:
        if names.count(field.name.lower()) > 1:
            raise SourceError(
                f"two directories of {path!r} name the column {field.name!r}, so it has no single value. Read without "
                "this column, or exclude the directory with a pattern in the path"
            )
    return {field.name: _cast(path, texts.get(field.name, ""), field, time_zone) for field in schema}


def _texts(path: str) -> dict[str, str]:
    """Return the escaped texts of the columns in a path."""
    texts: dict[str, str] = {}
    for name in path.split("/"):
        column, _, text = name.partition("=")
        # partition columns are outermost: deeper directories can look like them
        texts.setdefault(_unescape(column), text)
    return texts


def _cast(path: str, text: str, field: pa.Field, time_zone: str) -> pa.Scalar:
    kind = value_type(field.type)
    if text == NULL_NAME:
        return pa.scalar(None, kind)
    try:
        # Spark uses the bytes of a name unchanged.
        return cast_text(text if pa.types.is_binary(kind) else _unescape(text), kind, time_zone)
    except ValueError as error:
        advice = "Read the column as STRING and cast it, or exclude the directory with a pattern in the path"
        if pa.types.is_string(kind):
            advice = "Exclude the directory with a pattern in the path"
        raise SourceError(
            f"the directory {path!r} has {text!r} for column {field.name!r} of type {kind}: {error}. {advice}"
        ) from error


def _escaped_column(column: str) -> str:
    escaped = column.translate(_ESCAPES)
    if escaped[0] in _HIDING:
        return f"%{ord(escaped[0]):02X}{escaped[1:]}"
    return escaped


def _escaped_value(column: str, text: str) -> str:
    if not text:
        raise EncodingError(
            f"partitionBy: column {column!r} contains an empty string, which readers of directories would read as "
            f"null. Before the write, replace it by null, as in nullif(`{column}`, ''), or by another text, as in "
            f"if(`{column}` = '', 'none', `{column}`)"
        )
    escaped = text.translate(_ESCAPES)
    if escaped == NULL_NAME or escaped.endswith(_HIDDEN_SUFFIX):
        return f"{escaped[:-1]}%5F"
    return escaped


def _unescape(text: str) -> str:
    return _ESCAPE.sub(_character, text)


def _character(escape: re.Match[str]) -> str:
    return chr(int(escape[1], 16))


_INDEX = "\0index"  # not a column name


def chosen_places(
    where: Mapping[str, object] | str | pc.Expression | None,
    schema: pa.Schema,
    places: Iterable[Place],
    derived: tuple[pa.Field, Callable[[Sequence[str]], pa.Array]] | None = None,
    argument: str = "where",
) -> set[Place]:
    """Return the places whose values match a condition on the columns of `schema`; see `conditions.predicate`.

    Timestamps without an offset are in the time zone of each place. `derived` is an additional column with the function
    that computes its values from paths.

    Raises:
        ConfigError: like `predicate`, also if there are no places.
        CorruptData: a place has no values of these columns.
    """
    if derived is None:
        place_schema = schema
    else:
        place_schema = schema.append(derived[0])
    condition_of = functools.partial(predicate, where, place_schema, columns="partition columns", argument=argument)
    condition_of()
    chosen: set[Place] = set()
    for time_zone, paths in _by_zone(places).items():
        condition = condition_of(time_zone=time_zone)
        values = _values(paths, schema, time_zone) | ({} if derived is None else {derived[0].name: derived[1](paths)})
        table = pa.table({_INDEX: range(len(paths)), **values})
        if condition is None:
            matching = table
        else:
            matching = table.filter(condition)
        chosen.update((paths[index], time_zone) for index in matching[_INDEX].to_pylist())
    return chosen


def partitions_of(places: Sequence[Place], schema: pa.Schema) -> list[str]:
    """Return the partition of each place, such as `a=1/b=2`, with times in UTC: equal values have equal partitions."""
    names_by_place: dict[Place, str] = {}
    for time_zone, paths in _by_zone(places).items():
        values = _values(paths, schema, time_zone)
        names = [partition_names(name, array, UTC) for name, array in values.items()]
        names_by_place.update(((path, time_zone), "/".join(row)) for path, *row in zip(paths, *names, strict=True))
    return [names_by_place[place] for place in places]


def _by_zone(places: Iterable[Place]) -> dict[str, list[str]]:
    paths_by_zone: dict[str, list[str]] = {}
    for path, time_zone in dict.fromkeys(places):
        paths_by_zone.setdefault(time_zone, []).append(path)
    return paths_by_zone


def _values(paths: Sequence[str], schema: pa.Schema, time_zone: str) -> dict[str, pa.Array]:
    """Return the values of each path, by column."""
    rows = [parse_partition_path(path, schema, time_zone) for path in paths]
    columns: dict[str, pa.Array] = {}
    for field in schema:
        columns[field.name] = pa.array([row[field.name] for row in rows], value_type(field.type))
    return columns
