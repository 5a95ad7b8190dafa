"""The columns that have statistics, and their keys in the log."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeAlias

import pyarrow as pa

from ftfile.core.errors import ConfigError
from ftfile.rows.spark_types import is_variant

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    # The names of a column and of the fields of structs within it.
    Path: TypeAlias = tuple[str, ...]
    Keeps: TypeAlias = Callable[[pa.Field], bool]

# As many as Delta has by default.
COLUMNS_MAX = 32

_OPTION = "statisticsColumns"
_BOUNDED = (
    pa.types.is_signed_integer,
    pa.types.is_float32,
    pa.types.is_float64,
    pa.types.is_boolean,
    pa.types.is_date32,
    pa.types.is_decimal128,
    pa.types.is_string,
    pa.types.is_binary,
)


def is_bounded(kind: pa.DataType) -> bool:
    """Return True for types of Spark with an order that all readers share."""
    if pa.types.is_timestamp(kind):
        is_bounded_time: bool = kind.unit == "us"
        return is_bounded_time
    return any(is_kind(kind) for is_kind in _BOUNDED)


def leaves(schema: pa.Schema) -> Iterator[tuple[Path, pa.Field]]:
    """Yield the columns, and the fields of structs, that can have bounds, in the order of the schema."""
    for field in schema:
        yield from _leaves_of((field.name,), field)


def _leaves_of(path: Path, field: pa.Field) -> Iterator[tuple[Path, pa.Field]]:
    if is_variant(field.type):
        return
    if pa.types.is_struct(field.type):
        for child in field.type:
            yield from _leaves_of((*path, child.name), child)
    elif is_bounded(field.type):
        yield path, field


def key_of(path: Path) -> str:
    r"""Return the key of a column in the log: names joined by dots, with `\` before dots and backslashes in names."""
    return ".".join(name.replace("\\", "\\\\").replace(".", "\\.") for name in path)


def first_columns(schema: pa.Schema, keeps: Keeps) -> tuple[str, ...]:
    """Return the keys of the first columns whose values a format keeps, at most `COLUMNS_MAX`."""
    keys: list[str] = []
    for path, field in leaves(schema):
        if len(keys) < COLUMNS_MAX and keeps(field):
            keys.append(key_of(path))
    return tuple(keys)


def named_columns(names: Sequence[Path], schema: pa.Schema, keeps: Keeps) -> tuple[str, ...]:
    """Return the keys of named columns, in the order of the schema. The name of a struct selects its fields.

    Raises:
        ConfigError: a column does not exist in the files, or cannot have statistics.
    """
    chosen: set[Path] = set()
    for name in names:
        folded = _fold_case(name)
        matches: list[Path] = []
        for path, field in leaves(schema):
            if _fold_case(path[: len(name)]) == folded:
                _check_kept(path, field, keeps)
                matches.append(path)
        if not matches:
            available = ", ".join(key_of(path) for path, _ in leaves(schema)) or "none"
            raise ConfigError(
                f"{_OPTION} names {key_of(name)!r}, which is not a column of the files that can have statistics. "
                f"Arrays, maps, variants, times of day and columns in paths have none; available are: {available}"
            )
        chosen.update(matches)
    keys: list[str] = []
    for path, _ in leaves(schema):
        if path in chosen:
            keys.append(key_of(path))
    return tuple(keys)


def _check_kept(path: Path, field: pa.Field, keeps: Keeps) -> None:
    if not keeps(field):
        raise ConfigError(
            f"{_OPTION} names {key_of(path)!r}, but with these options the format does not return all values of this "
            "column as they were written, so rows could be outside of the bounds. Leave out the column, or a pattern "
            "of times such as timestampFormat"
        )


def _fold_case(path: Path) -> Path:
    return tuple(name.lower() for name in path)
