"""The comparisons that Spark makes of the condition of a call of `ftfile.spark.load`."""

from __future__ import annotations

import datetime
import tempfile  # noqa: TID251 - for what Spark reads at once, and nothing else
from decimal import Decimal
from typing import TYPE_CHECKING, Any, NamedTuple

import pyarrow as pa

from ftfile.core.logs import get_logger
from ftfile.rows.predicate import all_of, any_of
from ftfile.spark.filters import comparison
from ftfile.spark.native.conditions import filter_frame

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pyspark.sql import SparkSession
    from pyspark.sql.types import StructType

    from ftfile.rows.predicate import Tree


_log = get_logger(__name__)

# The signs of Spark's expressions, and of the same comparison with the literal at the right.
_SIGNS = {
    "EqualTo": "EqualTo",
    "EqualNullSafe": "EqualNullSafe",
    "GreaterThan": "LessThan",
    "GreaterThanOrEqual": "LessThanOrEqual",
    "LessThan": "GreaterThan",
    "LessThanOrEqual": "GreaterThanOrEqual",
}
_TEXTS = {"StartsWith": "StringStartsWith", "EndsWith": "StringEndsWith", "Contains": "StringContains"}
_JOINS = ("And", "Or")
_NULL_TESTS = ("IsNull", "IsNotNull")
_WHOLE = ("TINYINT", "SMALLINT", "INT", "BIGINT")
_SET_SEPARATOR = "\0"
_REPLACED = "\ufffd"  # stands for bytes that are not UTF-8
_EXPRESSIONS_MAX = 1000  # each takes several calls of the JVM
_DEPTH_MAX = 100
_DAY_0 = datetime.date(1970, 1, 1)
_TIME_0 = datetime.datetime(1970, 1, 1)  # noqa: DTZ001 - of a type without time zone
_INSTANT_0 = datetime.datetime(1970, 1, 1, tzinfo=datetime.timezone.utc)


def filters_of(spark: SparkSession, schema: StructType, where: str | Mapping[str, object] | None) -> list[Tree]:
    """Return filters that all rows meet for which a condition is true; no filters if ftfile cannot evaluate all of it.

    Spark's optimizer resolves the condition with the settings of the session: it decides which operand of a comparison
    is cast, and to which value. A filter compares an unchanged column with a value of the column's type. So a
    condition in which Spark casts a column has no filters. It has none, too, if another part of it may fail on a row,
    or if it contains the current time, which each query reads again.
    """
    if where is None:
        return []
    try:
        with tempfile.TemporaryDirectory(prefix="ftfile-load-") as folder:
            rows = spark.read.schema(schema).parquet(f"file://{folder}")
        query: Any = filter_frame(rows, where)._jdf.queryExecution()  # noqa: SLF001 - what follows has no other way
        jvm: Any = spark._jvm  # noqa: SLF001
        current = jvm.org.apache.spark.sql.catalyst.trees.TreePattern.CURRENT_LIKE()
        plan = query.optimizedPlan()
        if query.analyzed().containsPattern(current) or _name(plan) != "Filter":
            return []
        if _name(plan.child()) != "LogicalRelation":
            return []
        translation = _Translation()
        return [translation.filter_of(part) for part in _parts(plan.condition())]
    except _Unknown as error:
        _log.debug("no file is left out: %s", error)
    except Exception as error:  # the query reports it
        _log.debug("no file is left out: %s", error)
    return []


class _Unknown(Exception):
    """A part of a condition is not a comparison of a column with a value."""


class _Translation:
    """The conversion of one condition of Spark's optimizer."""

    def __init__(self) -> None:
        self._count = 0

    def filter_of(self, expression: Any, depth: int = 0, *, negated: bool = False) -> Tree:  # noqa: ANN401 - of the JVM
        """Return the filter that is true for the rows for which an expression is true or, if negated, false.

        Raises:
            _Unknown: there is none.
        """
        self._count += 1
        if self._count > _EXPRESSIONS_MAX or depth > _DEPTH_MAX:
            raise _Unknown("it has too many parts")
        kind = _name(expression)
        if kind in _JOINS:
            sides = (expression.left(), expression.right())
            parts = [self.filter_of(side, depth + 1, negated=negated) for side in sides]
            return all_of(parts) if (kind == "And") != negated else any_of(parts)
        if kind == "Not":
            return self.filter_of(expression.child(), depth + 1, negated=not negated)
        found = _translate_comparison(kind, expression)
        return comparison(found.kind, found.path, found.value, negated=negated)


class _Comparison(NamedTuple):
    """The class of a filter with its column and value."""

    kind: str
    path: tuple[str, ...]
    value: object


def _translate_comparison(kind: str, expression: Any) -> _Comparison:  # noqa: ANN401 - of the JVM
    """Return the class of the filter of an expression that joins no others, and its column and value."""
    if kind in _NULL_TESTS:
        return _Comparison(kind, _path(expression.child()), None)
    if kind in _SIGNS and _name(expression.left()) == "Literal":
        return _Comparison(_SIGNS[kind], _path(expression.right()), _literal(expression.left()))
    if kind in _SIGNS:
        return _Comparison(kind, _path(expression.left()), _literal(expression.right()))
    if kind in _TEXTS:
        return _Comparison(_TEXTS[kind], _path(expression.left()), _literal(expression.right()))
    if kind in ("In", "InSet"):
        column, values = _list(kind, expression)
        return _Comparison("In", _path(column), values)
    return _Comparison("EqualTo", _path(expression), value=True)


def _list(kind: str, expression: Any) -> tuple[Any, tuple[object, ...]]:  # noqa: ANN401 - of the JVM
    """Return the column of a list, and its values."""
    if kind == "InSet":
        column = expression.child()
        return column, _members(expression.hset(), column.dataType().sql())
    values = expression.list()
    return expression.value(), tuple(_literal(values.apply(number)) for number in range(values.size()))


def _parts(condition: Any) -> list[Any]:  # noqa: ANN401 - of the JVM
    """Return the conditions that are joined by AND, from left to right."""
    parts, rest = [], [condition]
    while rest:
        condition = rest.pop()
        if _name(condition) == "And":
            rest += [condition.right(), condition.left()]
        else:
            parts.append(condition)
    return parts


def _name(node: Any) -> str:  # noqa: ANN401 - of the JVM
    """Return the name of the class of an expression or a plan."""
    return str(node.getClass().getSimpleName())


def _path(expression: Any) -> tuple[str, ...]:  # noqa: ANN401 - of the JVM
    """Return the names of a column, or of a field of a struct."""
    kind = _name(expression)
    if kind == "AttributeReference":
        return (str(expression.name()),)
    if kind == "GetStructField":
        return (*_path(expression.child()), str(expression.extractFieldName()))
    raise _Unknown(f"{expression} is not a column")


def _literal(expression: Any) -> object:  # noqa: ANN401 - of the JVM
    if _name(expression) != "Literal":
        raise _Unknown(f"{expression} is not a value")
    value = expression.value()
    if value is None:
        return None
    return _value(value, expression.dataType().sql())


def _members(values: Any, kind: str) -> tuple[object, ...]:  # noqa: ANN401 - of the JVM
    """Return the values of a set of the JVM, which are read in one call as texts."""
    texts = str(values.mkString(_SET_SEPARATOR)).split(_SET_SEPARATOR)
    is_exact = len(texts) == values.size() and not any(_REPLACED in text for text in texts)
    if kind == "BINARY" or not is_exact or values.contains(None):
        raise _Unknown(f"a set of {kind}")
    return tuple(_value(text, kind) for text in texts)


def _value(value: Any, kind: str) -> object:  # noqa: ANN401, PLR0911 - of the JVM; one for each type
    """Return a value that Spark stores for a type, or its text. Other types, and values without equal, are unknown."""
    try:
        if kind == "STRING":
            return value if isinstance(value, str) else bytes(value.getBytes()).decode()
        if kind == "BOOLEAN":
            return str(value).lower() == "true"
        if kind in _WHOLE:
            return int(value)
        if kind == "DOUBLE":
            return float(value)
        if kind == "FLOAT":
            return pa.scalar(float(value), pa.float32()).as_py()
        if kind.startswith("DECIMAL"):
            return Decimal(str(value))
        if kind == "BINARY":
            return bytes(value)
        if kind == "DATE":
            return _DAY_0 + datetime.timedelta(days=int(value))
        start = {"TIMESTAMP": _INSTANT_0, "TIMESTAMP_NTZ": _TIME_0}[kind]
        return start + datetime.timedelta(microseconds=int(value))
    except (ValueError, OverflowError, LookupError) as error:
        raise _Unknown(f"{value} of {kind}: {error}") from error
