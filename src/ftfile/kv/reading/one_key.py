"""The rows of one key in several runs, folded to one: `kv.fold` for single reads, most of them without Arrow."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pyarrow as pa

from ftfile.kv.columns import DELETE, MERGE, OP, SET
from ftfile.kv.fold import fold
from ftfile.kv.key_columns import key_array
from ftfile.kv.merge_functions import LAST

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ftfile.kv.definition import StoreDefinition
    from ftfile.kv.key_values import Key

    Values = tuple[Any, ...]


class _NotHere(Exception):
    """Values are folded with Arrow: they have to be cast, rounded or refused as it does."""


def fold_key(rows: Sequence[tuple[int, Values]], key: Key, definition: StoreDefinition) -> Values | None:
    """Return the values of a key; None if it has none.

    Args:
        rows: operation and values of each row, new to old; the first that is no merge is the last one, except with a
            sequence column.
        key: of them.
        definition: of the store; the values are those of its value columns.

    Raises:
        EncodingError, UserCodeError: see `fold`.
    """
    if definition.sequence is not None:
        place = definition.values.index(definition.sequence)
        op, values = max(rows, key=lambda row: row[1][place])  # the first of equal ones, which is the newest
        return None if op == DELETE else values
    operands = [values for op, values in rows if op != DELETE]
    if len(operands) <= 1:
        return operands[0] if operands else None
    names = definition.values
    try:
        return tuple(
            _merged([values[place] for values in operands], definition.merge.get(name, LAST), definition, name)
            for place, name in enumerate(names)
        )
    except _NotHere:
        return _folded(operands, key, definition)


def _merged(values: list[Any], function: str, definition: StoreDefinition, name: str) -> Any:  # noqa: ANN401
    """Return the value of a column, given those of its rows, new to old."""
    if function == LAST:
        return values[0]
    present = [value for value in values if value is not None]
    if len(present) <= 1 or function == "coalesce":
        return present[0] if present else None
    kind = definition.schema.field(name).type
    if function == "sum" and kind == pa.int64():
        found = sum(present)
        if type(found) is int and -(1 << 63) <= found < 1 << 63:
            return found
    elif function in {"min", "max"} and not pa.types.is_floating(kind):
        return min(present) if function == "min" else max(present)
    elif function == "append" and (pa.types.is_string(kind) or pa.types.is_binary(kind)):
        return present[0][:0].join(reversed(present))
    raise _NotHere


def _folded(operands: Sequence[Values], key: Key, definition: StoreDefinition) -> Values:
    kinds = definition.schema.types
    stretches: list[pa.Table] = []
    for values in reversed(operands):
        columns = [key_array([part], kind) for part, kind in zip(key, kinds, strict=False)]
        columns += [pa.array([value], field.type) for value, field in zip(values, definition.value_fields, strict=True)]
        op = pa.array([MERGE if stretches else SET], pa.int8())
        stretches.append(pa.table([*columns, op], names=[*definition.schema.names, OP]))
    row = fold(stretches, definition, bottom=True).to_pylist()[0]
    return tuple(row[name] for name in definition.values)
