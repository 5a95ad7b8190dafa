"""Comparison of the filters that Spark passes to a reader with the statistics of files."""

from __future__ import annotations

import contextlib
import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from ftfile.rows.bounds.possible import FileBounds
from ftfile.rows.comparisons import OPPOSITES
from ftfile.rows.statistics.bounds import end_of_prefix
from ftfile.rows.statistics.columns import key_of, leaves
from ftfile.rows.value_text import UTC
from ftfile.spark.pushdown import exact_scalar

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from pyspark.sql import datasource

    from ftfile.core.bounds import BoundsColumn
    from ftfile.rows.bounds.possible import Mask
    from ftfile.rows.statistics.columns import Path


# By the name of Spark's class, since Spark 4.0 does not have these classes.
_SIGNS = {
    "EqualTo": "=",
    "EqualNullSafe": "=",
    "GreaterThan": ">",
    "GreaterThanOrEqual": ">=",
    "LessThan": "<",
    "LessThanOrEqual": "<=",
}
_DEPTH_MAX = 100  # Python limits recursion; a deeper filter excludes no file


class PushedFilters:
    """Filters that all rows of a read meet.

    Filters on columns and on fields of structs exclude files. A filter of another kind, or with a value that is not
    exactly a value of the column's type, excludes no file.
    """

    def __init__(self, filters: Iterable[datasource.Filter], schema: pa.Schema) -> None:
        """Compare filters on rows with this schema. As in Spark, the case of names is ignored."""
        self._filters = tuple(filters)
        self._fields: dict[Path, pa.Field] = {}  # by their names in lower case
        self._paths: dict[Path, pa.Field] = {}
        names = _attributes(self._filters)
        for path, field in leaves(schema):
            folded = _folded(path)
            if folded in names:
                self._fields[folded] = pa.field(key_of(path), field.type)
                self._paths[path] = field

    def leaves(self) -> Mapping[Path, pa.Field]:
        """Return the columns, and fields of structs, that the filters compare, by path."""
        return self._paths

    def possible(self, bounds: Mapping[str, BoundsColumn], rows: Sequence[int | None]) -> Mask:
        """Return a mask: False for each file that contains no row that meets all filters."""
        columns = _PushedBounds(
            schema=pa.schema(self._fields.values()),
            time_zone=UTC,
            called="columns",
            time_zones={},
            argument="filter",
            bounds=bounds,
            rows=rows,
            fields_by_path=self._fields,
        )
        mask = columns.always(True)  # noqa: FBT003 - the answer
        for pushed in self._filters:
            mask &= columns.may_match(pushed)
        return mask


@dataclass(frozen=True, slots=True)
class _PushedBounds(FileBounds):
    """The columns of files. The name of a field is its key in the statistics."""

    fields_by_path: Mapping[Path, pa.Field]

    def literal(self, field: pa.Field, value: object) -> pa.Scalar:
        """Return a value of Spark in the type of a column; ValueError, TypeError or an error of Arrow for others."""
        if isinstance(value, float) and math.isnan(value) and pa.types.is_floating(field.type):
            return pa.scalar(value, field.type)
        return exact_scalar(value, field.type)

    def may_match(self, pushed: datasource.Filter, *, is_negated: bool = False, depth: int = 0) -> Mask:
        """Return True for files that may have a row for which a filter is true or, if negated, false.

        For null, most filters are neither true nor false. So only comparisons are negated, and never a mask.
        """
        kind = type(pushed).__name__
        if depth > _DEPTH_MAX:
            return self._unknown()
        if kind == "Not":
            return self.may_match(_child(pushed, "child"), is_negated=not is_negated, depth=depth + 1)
        if kind in ("And", "Or"):
            first = self.may_match(_child(pushed, "left"), is_negated=is_negated, depth=depth + 1)
            second = self.may_match(_child(pushed, "right"), is_negated=is_negated, depth=depth + 1)
            is_both = (kind == "And") != is_negated
            return first & second if is_both else first | second
        field = self.fields_by_path.get(_attribute(pushed))
        if field is not None:
            with contextlib.suppress(pa.ArrowException, TypeError, ValueError, OverflowError):
                return self._compared(kind, field, getattr(pushed, "value", None), is_negated=is_negated)
        return self._unknown()

    def _compared(self, kind: str, field: pa.Field, value: Any, *, is_negated: bool) -> Mask:  # noqa: ANN401 - of all types
        if kind in ("IsNull", "IsNotNull"):
            return self._null_test(field, is_null=(kind == "IsNull") != is_negated)
        if kind == "EqualNullSafe" and value is None:
            return self._null_test(field, is_null=not is_negated)
        if kind == "In":
            return self._membership(field, [item for item in value if item is not None], is_negated=is_negated)
        if kind == "StringStartsWith" and pa.types.is_string(field.type):
            return self._prefix(field, value, is_negated=is_negated)
        if kind in _SIGNS and value is not None:
            return self._comparison(kind, field, value, is_negated=is_negated)
        return self._unknown()

    def _comparison(self, kind: str, field: pa.Field, value: object, *, is_negated: bool) -> Mask:
        sign = _SIGNS[kind]
        if not is_negated:
            return self.compare(field, sign, value)
        mask = self.compare(field, OPPOSITES[sign], value)
        if kind == "EqualNullSafe":
            mask |= self.is_null(field)
        return mask

    def _null_test(self, field: pa.Field, *, is_null: bool) -> Mask:
        if is_null:
            return self.is_null(field)
        return self.is_valid(field)

    def _membership(self, field: pa.Field, values: Sequence[object], *, is_negated: bool) -> Mask:
        if not is_negated:
            return self.is_one_of(field, values)
        if not values:
            return self._unknown()  # a null is not in an empty list, depending on a setting of Spark
        return self.is_none_of(field, values)

    def _prefix(self, field: pa.Field, prefix: str, *, is_negated: bool) -> Mask:
        """Compare with the range of all texts that have a prefix."""
        end = end_of_prefix(prefix)
        if not is_negated:
            mask = self.compare(field, ">=", prefix)
            if end is not None:
                mask &= self.compare(field, "<", end)
            return mask
        mask = self.compare(field, "<", prefix)
        if end is not None:
            mask |= self.compare(field, ">=", end)
        return mask

    def _unknown(self) -> Mask:
        return self.always(True)  # noqa: FBT003 - the answer

    def _key(self, field: pa.Field) -> str:
        return str(field.name)


def _attributes(filters: Iterable[datasource.Filter]) -> set[Path]:
    """Return the names in filters, in lower case."""
    names: set[Path] = set()
    rest = list(filters)
    while rest:
        pushed = rest.pop()
        names.add(_attribute(pushed))
        for role in ("child", "left", "right"):
            if hasattr(pushed, role):
                rest.append(_child(pushed, role))
    return names


def _child(pushed: datasource.Filter, role: str) -> datasource.Filter:
    child: datasource.Filter = getattr(pushed, role)
    return child


def _attribute(pushed: datasource.Filter) -> Path:
    return _folded(getattr(pushed, "attribute", ()))


def _folded(path: Iterable[str]) -> Path:
    return tuple(name.lower() for name in path)
