"""The maximum memory of the values of an Avro file, computed from its schema before a value is decoded.

A value that is encoded in n bytes takes at most `fixed_bytes` + `ratio` * n bytes of memory; the bound of an array
follows from the minimum encoded length of its elements. A type that contains itself has no such bound, nor has an array
of values that are encoded in no bytes.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Mapping

BLOCK_MEMORY_BYTES_MAX = 256 << 20  # the estimated memory of the values of a block above which they become columns
ROWS_MEMORY_BYTES_MAX = 2 << 30  # of the rows of a block, without the content of arrays, maps and texts
SCHEMA_BYTES_MAX = 4 << 20
LEVELS_MAX = 100  # of nested types
_ADDED_LEVELS = 3  # for each level: a map becomes an array of records, the branch of a union a record
DECIMAL_BYTES_MAX = 64  # more than twice the largest number of columns


class Cost(NamedTuple):
    """The memory of values of a type."""

    encoded_bytes: int  # minimum
    fixed_bytes: int
    ratio: float = 0

    def per_byte(self) -> float:
        """Return the memory of many values per encoded byte; `ValueError` for values without bytes."""
        if not self.encoded_bytes:
            raise ValueError("an array of values that take no bytes")
        return self.ratio + self.fixed_bytes / self.encoded_bytes

    def rows_bytes(self, rows: int) -> int:
        """Return the memory of rows of minimum length, which is a lower bound for blocks of any writer."""
        return rows * self.fixed_bytes

    def block_bytes(self, rows: int, plain_bytes: int) -> float:
        """Return the maximum memory of a block of such rows; a few rows can take as much."""
        return rows * self.fixed_bytes + self.ratio * plain_bytes


# Objects of CPython with a reference to each; a string with one wide character has four bytes per character.
_REFERENCE, _LIST, _DICT, _DICT_ENTRY, _LOGICAL = 8, 64, 240, 40, 128
_LEAVES = {
    "null": Cost(0, _REFERENCE),
    "boolean": Cost(1, _REFERENCE),
    "int": Cost(1, 40),
    "long": Cost(1, 44),
    "float": Cost(4, 32),
    "double": Cost(8, 32),
    "bytes": Cost(1, 42, 1),
    "string": Cost(1, 58, 4),
    "enum": Cost(1, _REFERENCE),
}


def cost_of(schema: Any, *, added_levels: bool = False) -> Cost:  # noqa: ANN401 - JSON
    """Return the memory of a row; `ValueError`, `KeyError`, `TypeError` or `AttributeError` if it is unbounded.

    With `added_levels`, the schema was derived from a bounded one, and has more levels.
    """
    return _cost(schema, {}, "", LEVELS_MAX * (_ADDED_LEVELS if added_levels else 1))


def _cost(schema: Any, named: dict[str, Cost | None], namespace: str, levels: int) -> Cost:  # noqa: ANN401 - JSON
    if not levels:
        raise ValueError(f"types nested more than {LEVELS_MAX} levels")
    if isinstance(schema, list):
        return _union([_cost(branch, named, namespace, levels - 1) for branch in schema])
    if isinstance(schema, str):
        return _LEAVES[schema] if schema in _LEAVES else _cost_of_name(schema, named, namespace)
    kind = schema["type"]
    if kind == "array":
        return Cost(1, _LIST, _cost(schema["items"], named, namespace, levels - 1).per_byte())
    if kind == "map":
        return Cost(1, _DICT, _entry(_cost(schema["values"], named, namespace, levels - 1)).per_byte())
    if kind in ("record", "error", "enum", "fixed"):  # not a set, since it can be a schema, which is not hashable
        return _cost_of_named(schema, named, namespace, levels)
    cost = _cost(kind, named, namespace, levels - 1)
    return cost._replace(fixed_bytes=cost.fixed_bytes + _LOGICAL) if "logicalType" in schema else cost


def _cost_of_named(schema: Mapping[str, Any], named: dict[str, Cost | None], namespace: str, levels: int) -> Cost:
    name = _full_name(schema["name"], schema.get("namespace") or namespace)
    named[name] = None  # references to it in the meantime are within it
    if schema["type"] == "enum":
        cost = _LEAVES["enum"]
    elif schema["type"] == "fixed":
        size = max(0, int(schema["size"]))
        if schema.get("logicalType") == "decimal" and size > DECIMAL_BYTES_MAX:
            raise ValueError(f"decimals of {size} bytes, and at most {DECIMAL_BYTES_MAX} bytes are supported")
        cost = Cost(size, _LEAVES["bytes"].fixed_bytes + _LOGICAL, 1)
    else:
        inner = name.rpartition(".")[0]
        costs = [_cost(field["type"], named, inner, levels - 1) for field in schema["fields"]]
        cost = Cost(
            sum(cost.encoded_bytes for cost in costs),
            _DICT + sum(_DICT_ENTRY + cost.fixed_bytes for cost in costs),
            max((cost.ratio for cost in costs), default=0),
        )
    named[name] = cost
    return cost


def _cost_of_name(name: str, named: Mapping[str, Cost | None], namespace: str) -> Cost:
    full = _full_name(name, namespace)
    cost = named[full if full in named else name]
    if cost is None:
        raise ValueError(f"the type {full!r}, which contains itself")
    return cost


def _full_name(name: str, namespace: str) -> str:
    if namespace and "." not in name:
        return f"{namespace}.{name}"
    return name


def _union(branches: list[Cost]) -> Cost:
    ratios = [cost.ratio + (cost.fixed_bytes - _REFERENCE) / (1 + cost.encoded_bytes) for cost in branches]
    return Cost(1 + min(cost.encoded_bytes for cost in branches), _REFERENCE, max(ratios))


def _entry(value: Cost) -> Cost:
    key = _LEAVES["string"]
    return Cost(
        key.encoded_bytes + value.encoded_bytes,
        _DICT_ENTRY + key.fixed_bytes + value.fixed_bytes,
        max(key.ratio, value.ratio),
    )
