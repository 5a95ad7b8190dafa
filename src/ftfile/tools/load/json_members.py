"""The refusal of members of JSON that Spark ignores."""

from __future__ import annotations

import json
from decimal import Decimal, DecimalException
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from ftfile.rows.buffers import is_list_like
from ftfile.rows.spark_types import DEPTH_MAX
from ftfile.tools.load.schema_texts import schema_option

if TYPE_CHECKING:
    from collections.abc import Mapping

_EXPONENT_MAX = 1000
_BIGINT_END = 1 << 63
_DECIMAL_END = 10**38
_SQL_NAMES = {pa.int8(): "TINYINT", pa.int16(): "SMALLINT", pa.int32(): "INT", pa.int64(): "BIGINT"}


class LineError(ValueError):
    """A line that is refused."""


class _Object(list[tuple[str, Any]]):
    """The members of an object, in which names can be repeated."""


# Numbers have all of their digits.
_decode = json.JSONDecoder(object_pairs_hook=_Object, parse_int=Decimal, parse_float=Decimal).decode


def _object_in(line: str) -> _Object:
    try:
        row = _decode(line)
    except RecursionError as error:
        raise LineError("it has too many nested values") from error
    except (ValueError, DecimalException) as error:
        raise LineError(f"it is not JSON: {error}") from error
    if not isinstance(row, _Object):
        raise LineError("it is not an object: write each object on a line")
    return row


def check_object(line: str) -> None:
    """Raise a `LineError` for a line that is not one object."""
    _object_in(line)


def check_members(line: str, schema: pa.Schema) -> None:
    """Check the members of the object on a line, also of objects in it.

    Raises:
        LineError: the line is not an object, or a member is unknown or repeated, or a part of a value would be lost.
    """
    row = _object_in(line)
    _check_repeated(row, "")
    for name, value in row:
        if name not in schema.names:
            raise LineError(f"column `{name}` is not among the columns of the directory and of the first lines")
        _check(value, schema.field(name).type, name, name)


def _check_repeated(members: _Object, path: str) -> None:
    seen = set()
    for name, _ in members:
        if name in seen:
            raise LineError(f"column `{path}{name}` occurs twice in an object")
        seen.add(name)


def _check(value: Any, kind: pa.DataType, path: str, column: str) -> None:  # noqa: ANN401 - JSON
    if isinstance(value, _Object):
        _check_object(value, kind, path, column)
    elif isinstance(value, list) and is_list_like(kind) and not pa.types.is_map(kind):
        for element in value:
            _check(element, kind.value_type, f"{path}.element", column)
    elif isinstance(value, (Decimal, str)) and pa.types.is_decimal(kind):
        _check_decimal(value, kind, path)
    elif isinstance(value, Decimal) and pa.types.is_integer(kind):
        _check_integer(value, kind, path, column)
    elif isinstance(value, str):
        try:
            value.encode()
        except UnicodeEncodeError as error:
            raise LineError(f"column `{path}`: it has half of a surrogate pair, which is not a character") from error


def _check_object(members: _Object, kind: pa.DataType, path: str, column: str) -> None:
    if not (pa.types.is_struct(kind) or pa.types.is_map(kind)):
        return  # it becomes a text with its spelling, or another check refuses it
    _check_repeated(members, f"{path}.")
    for name, member in members:
        member_path = f"{path}.{name}"
        if pa.types.is_map(kind):
            _check(member, kind.item_type, member_path, column)
            continue
        index = kind.get_field_index(name)
        if index < 0:
            raise LineError(
                f"the type of column `{column}` has no field `{member_path}`. If the first lines of a new directory "
                "lack a field, give the type of the column to --schema, as the JSON of a StructType"
            )
        _check(member, kind.field(index).type, member_path, column)


def _check_decimal(value: Decimal | str, kind: pa.Decimal128Type, path: str) -> None:
    try:
        number = Decimal(value)
    except DecimalException:
        return  # not a number, which is an error of another check
    if not number.is_finite() or abs(int(number.as_tuple().exponent)) > _EXPONENT_MAX:
        return
    digits = number.normalize().as_tuple().exponent
    if -int(digits) > kind.scale:
        raise LineError(f"column `{path}`: {value} has more digits after the point than {kind}: round it")


def _check_integer(number: Decimal, kind: pa.DataType, path: str, column: str) -> None:
    end = 1 << (kind.bit_width - 1)
    if -end <= number < end:
        return
    remedy = "correct it"
    if path == column:
        if -_BIGINT_END <= number < _BIGINT_END:
            other = "bigint"
        else:
            other = "decimal(38,0)" if abs(number) < _DECIMAL_END else "string"
        remedy += f", or use {schema_option(column, other)} for a new directory"
    raise LineError(f"column `{path}`: {number} does not fit its type, {_SQL_NAMES[kind]}: {remedy}")


def other_members(line: str, types: Mapping[str, pa.DataType]) -> list[tuple[str, Any]]:
    """Return the members of the object on a line whose types are not given; a `LineError` as `check_members`."""
    row = _object_in(line)
    _check_repeated(row, "")
    return [(name, value) for name, value in row if name not in types]


def as_document(members: list[tuple[str, Any]]) -> bytes:
    """Return members as a line of JSON; a `LineError` if one has more levels than a column can have."""
    texts = [f"{json.dumps(name)}:{_text(member, name, DEPTH_MAX)}" for name, member in members]
    return f"{{{','.join(texts)}}}\n".encode()


def _text(value: Any, column: str, levels: int) -> str:  # noqa: ANN401 - JSON
    if isinstance(value, list) and levels == 0:
        raise LineError(
            f"column `{column}` has more than {DEPTH_MAX} levels of arrays and objects: store it as text, with "
            f"{schema_option(column, 'string')}"
        )
    if isinstance(value, _Object):
        return "{" + ",".join(f"{json.dumps(name)}:{_text(inner, column, levels - 1)}" for name, inner in value) + "}"
    if isinstance(value, list):
        return "[" + ",".join(_text(inner, column, levels - 1) for inner in value) + "]"
    return str(value) if isinstance(value, Decimal) else json.dumps(value)
