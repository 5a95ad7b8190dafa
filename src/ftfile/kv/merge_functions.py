"""Merge functions, which combine an older and a newer value into one value.

Nulls are ignored: a value and a null give the value, and functions receive only pairs of values. `combine` takes two
arrays of the same length without nulls. It must be associative, because jobs combine adjacent values in any grouping.
"""

from __future__ import annotations

import decimal
import math
import operator
from functools import lru_cache, partial
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

import numpy as np
import pyarrow as pa

from ftfile.core.errors import ConfigError, UserCodeError
from ftfile.core.extensions import is_name_of_code, load
from ftfile.core.options.kinds import by_lower_case
from ftfile.rows import kernels as pc
from ftfile.rows.buffers import from_numpy, numbers_from, values_of

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence

    Combine = Callable[[pa.Array, pa.Array], pa.Array]
    Pair = Callable[[Any, Any], Any]


# The newest value, even if it is null. If all columns are merged this way, merges are upserts.
LAST = "last"

_PRECISION_MAX = 38
_SUM_DIGITS = 10  # digits that a sum of decimals adds, as in Spark
# Digits of a 64-bit integer, which also bound the number of summed values.
_LONG_DIGITS = 19
_EXACT = decimal.Context(prec=4 * _PRECISION_MAX)  # exact for any number of decimals


class MergeFunction(Protocol):
    """A way to combine values; the class is instantiated without arguments."""

    def combine(self, older: pa.Array, newer: pa.Array, /) -> pa.Array:
        """Return an array of the same length and type with the combined value at each index.

        Neither array contains nulls. Any process may call it with any adjacent pairs, any number of times.
        """


def _merge_sum(older: pa.Array, newer: pa.Array) -> pa.Array:
    """Add values of the type that `_summing_type` returned."""
    return pc.add_checked(older, newer).cast(older.type)  # Arrow's sum of decimals has one more digit


def _summing_type(values: pa.Array, count: int) -> pa.DataType:
    kind = values.type
    if pa.types.is_decimal(kind):
        return pa.decimal256(kind.precision + _LONG_DIGITS, kind.scale)
    if pa.types.is_integer(kind):
        ends = pc.min_max(values).as_py()
        greatest = max(abs(ends["min"] or 0), abs(ends["max"] or 0))
        if greatest * count >= 1 << 63:
            return pa.decimal256(2 * _LONG_DIGITS)
    return kind


def _sum_of_two(older: Any, newer: Any) -> Any:  # noqa: ANN401 - integers, floats or decimals
    if isinstance(older, decimal.Decimal):
        return _EXACT.add(older, newer)
    if isinstance(older, float):
        return float(older) + float(newer)
    return operator.index(older) + operator.index(newer)  # integers of numpy have 64 bits


def _narrow_sum(total: Any, kind: pa.DataType) -> Any:  # noqa: ANN401
    """Return a sum in its column's type; raise an OverflowError if it does not fit."""
    if pa.types.is_decimal(kind):
        total = total.quantize(decimal.Decimal(1).scaleb(-kind.scale), context=_EXACT)
        is_in_column = not total or total.adjusted() < kind.precision - kind.scale
    else:
        is_in_column = pa.types.is_floating(kind) or -(1 << 63) <= total < 1 << 63
    if not is_in_column:
        raise OverflowError(f"{total} does not fit into {kind}")
    return total


def _greater_of(older: Any, newer: Any) -> Any:  # noqa: ANN401
    if _is_nan(older):
        return older
    if _is_nan(newer):
        return newer
    return max(older, newer)


def _lesser_of(older: Any, newer: Any) -> Any:  # noqa: ANN401
    if _is_nan(older):
        return newer
    if _is_nan(newer):
        return older
    return min(older, newer)


def _is_nan(value: Any) -> bool:  # noqa: ANN401
    return isinstance(value, float) and math.isnan(value)


def _merge_max(older: pa.Array, newer: pa.Array) -> pa.Array:
    maxima = _chosen(pc.max_element_wise, older, newer)
    if not pa.types.is_floating(maxima.type):
        return maxima
    # Arrow prefers numbers; in Spark, NaN is greater than all numbers.
    is_nan = pc.or_(pc.is_nan(older), pc.is_nan(newer))
    return pc.if_else(is_nan, pa.scalar(np.nan, maxima.type), maxima)


def _chosen(choose: Combine, older: pa.Array, newer: pa.Array) -> pa.Array:
    if not pa.types.is_timestamp(older.type):
        return choose(older, newer)
    plain = pa.timestamp(older.type.unit)  # Arrow has no kernel for timestamps with a time zone
    return choose(older.view(plain), newer.view(plain)).view(older.type)


def _append(older: pa.Array, newer: pa.Array) -> pa.Array:
    if not pa.types.is_list(older.type):
        return pc.binary_join_element_wise(older, newer, pa.scalar("", older.type))
    pairs = np.arange(2 * len(older)).reshape(2, -1).T.ravel()  # each older list before the newer one
    lists = pa.concat_arrays([older, newer]).take(numbers_from(pairs))
    ends = np.cumsum(values_of(pc.list_value_length(lists), np.int32))[1::2]
    offsets = from_numpy(np.append(0, ends).astype(np.int32), pa.int32())
    return pa.ListArray.from_arrays(offsets, lists.flatten(), type=older.type)


def _summed_type_of(kind: pa.DataType) -> pa.DataType | None:
    """Return the type of a sum, as in Spark's `sum`."""
    if pa.types.is_integer(kind):
        return pa.int64()
    if pa.types.is_floating(kind):
        return pa.float64()
    if pa.types.is_decimal(kind):
        return pa.decimal128(min(kind.precision + _SUM_DIGITS, _PRECISION_MAX), kind.scale)
    return None


def _ordered_type_of(kind: pa.DataType) -> pa.DataType | None:
    tests = (pa.types.is_integer, pa.types.is_floating, pa.types.is_decimal, pa.types.is_date, pa.types.is_timestamp)
    if any(test(kind) for test in (*tests, pa.types.is_string, pa.types.is_binary)):
        return kind
    return None


def _appended_type_of(kind: pa.DataType) -> pa.DataType | None:
    if pa.types.is_string(kind) or pa.types.is_binary(kind) or pa.types.is_list(kind):
        return kind
    return None


class _Own(NamedTuple):
    """A built-in merge function."""

    combine: Combine
    pair: Pair  # the same for two Python values
    type_of: Callable[[pa.DataType], pa.DataType | None]  # type of the column by value type; None if unsupported
    wide_type: Callable[[pa.Array, int], pa.DataType] = lambda values, _: values.type  # see the function `wide_type`
    narrow: Callable[[Any, pa.DataType], Any] = lambda value, _: value  # casts to the column type, at the end


_FUNCTIONS = {
    "append": _Own(_append, operator.add, _appended_type_of),
    "coalesce": _Own(lambda _, newer: newer, lambda _, newer: newer, lambda kind: kind),  # the arrays contain no nulls
    "max": _Own(_merge_max, _greater_of, _ordered_type_of),
    "min": _Own(lambda older, newer: _chosen(pc.min_element_wise, older, newer), _lesser_of, _ordered_type_of),
    "sum": _Own(_merge_sum, _sum_of_two, type_of=_summed_type_of, wide_type=_summing_type, narrow=_narrow_sum),
}


def is_merge_name(name: str) -> bool:
    """Return True for `last`, and for the name of a built-in function."""
    return name == LAST or name in _FUNCTIONS


def merged_type(name: str, column: str, kind: pa.DataType) -> pa.DataType:
    """Return the type of merged values, wider for sums, as in Spark; ConfigError for an unsupported type."""
    if name == LAST:
        return kind
    if name not in _FUNCTIONS:
        merge_function(name)
        return kind
    result_type = _FUNCTIONS[name].type_of(kind)
    if result_type is None:
        raise ConfigError(f"merge={column}:{name}: {name} does not support a column of type {kind}")
    return result_type


def wide_type(name: str, values: pa.Array, count: int) -> pa.DataType:
    """Return a type wide enough to combine up to `count` values: no intermediate result overflows."""
    if name in _FUNCTIONS:
        return _FUNCTIONS[name].wide_type(values, count)
    return values.type


@lru_cache
def merge_function(name: str) -> MergeFunction:
    """Return the function with a name other than `last`, or an instance of the user's class `module:Class`.

    Raises:
        ConfigError: it does not exist.
        UserCodeError: the class cannot be instantiated.
    """
    if name in _FUNCTIONS:
        return _FUNCTIONS[name]
    if not is_name_of_code(name):
        names = ", ".join(sorted([LAST, *_FUNCTIONS]))
        raise ConfigError(f"merge={name!r} is not understood: use one of {names}, or your own `module:Class`")
    function_class = load("merge", name)
    try:
        function: MergeFunction = function_class()
    except Exception as error:
        raise UserCodeError(f"merge={name!r}: {name}() failed: {error!r}") from error
    if not callable(getattr(function, "combine", None)):
        raise ConfigError(f"merge={name!r} has no method `combine(older, newer)`")
    return function


def combine_pairs(name: str, older: pa.Array, newer: pa.Array) -> pa.Array:
    """Return the value of each pair; TypeError if a class returns an invalid result. Its own errors propagate."""
    combined = merge_function(name).combine(older, newer)
    if not isinstance(combined, pa.Array) or len(combined) != len(older):
        raise TypeError(f"combine() returned {type(combined).__name__}, not an Arrow array with {len(older)} values")
    if combined.type == older.type:
        return combined
    return combined.cast(older.type)


def combine_values(name: str, values: Sequence[Any], kind: pa.DataType) -> Any:  # noqa: ANN401
    """Return the merged value of Python values, old to new, equal to merging arrays of the type; None without values.

    Adjacent pairs are combined in rounds, as for arrays, so that sums of floats are identical.

    Raises:
        OverflowError: a sum does not fit into the column.
        Exception: any error of a user's class.
    """
    builtin = _FUNCTIONS.get(name)
    if builtin is not None:
        pair = builtin.pair
    else:
        pair = partial(_pair_by_class, name, kind)
    while len(values := [value for value in values if value is not None]) > 1:
        combined = [*map(pair, values[::2], values[1::2])]
        values = combined + values[2 * len(combined) :]
    if not values:
        return None
    if builtin is None:
        return values[0]
    return builtin.narrow(values[0], kind)


def _pair_by_class(name: str, kind: pa.DataType, older: Any, newer: Any) -> Any:  # noqa: ANN401
    return combine_pairs(name, pa.array([older], kind), pa.array([newer], kind))[0].as_py()


def parse_merge(merge: str, values: Sequence[str]) -> dict[str, str]:
    """Return the function of each value column that the text of the option names."""
    functions: dict[str, str] = {}
    spelled = by_lower_case(values)
    for column, name in _items(merge):
        prefix, colon, function = name.partition(":")
        if column is None and colon and prefix.lower() in spelled:
            merge_function(function)  # raises the error of an unknown function
        if column is None:
            if "," in merge:
                raise ConfigError(f"merge={merge!r}: {name!r} has no column; write `column:function`")
            functions = dict.fromkeys(values, name)
        elif column.lower() not in spelled:
            raise ConfigError(f"merge={merge!r}: {column!r} is not one of the value columns {list(values)}")
        else:
            functions[spelled[column.lower()]] = name
    return functions


def _items(merge: str) -> Iterator[tuple[str | None, str]]:
    """Yield column and function of each item of the option; column None, as in `sum`, for all columns."""
    for item in merge.split(","):
        column, _, name = item.strip().partition(":")
        is_function = name and (is_merge_name(name) or ":" in name)
        yield (column, name) if is_function else (None, item.strip())


def code_of(merge: str | Mapping[str, str] | None) -> frozenset[str]:
    """Return the classes that a caller names in the option `merge`; empty for None."""
    if isinstance(merge, str):
        items: Iterable[tuple[str | None, str]] = _items(merge)
    else:
        items = (merge or {}).items()
    classes = set()
    for _, name in items:
        if not is_merge_name(name):
            classes.add(name)
    return frozenset(classes)


def check_named_code(functions: Mapping[str, str], code: Collection[str]) -> None:
    """Raise a ConfigError for a merge class that the caller has not named."""
    if not code_of(functions) <= frozenset(code):
        text = functions_text(dict(sorted(functions.items())))
        raise ConfigError(
            f"the store has merge={text!r}, and ftfile does not import code only because a directory names it. If you "
            f"trust this code, give merge={text!r} as an argument or an option"
        )


def check_functions(functions: Mapping[str, str], values: Sequence[str], code: Collection[str]) -> dict[str, str]:
    """Check that the functions and columns exist; return the functions other than `last` by value column."""
    check_named_code(functions, code)
    for column, name in functions.items():
        if column not in values:
            raise ConfigError(f"merge={dict(functions)!r}: {column!r} is not one of the value columns {list(values)}")
        if name != LAST:
            merge_function(name)
    return {column: name for column, name in functions.items() if name != LAST}


def functions_text(functions: Mapping[str, str]) -> str:
    """Return functions by column in the syntax of the option `merge`."""
    return ",".join(f"{column}:{name}" for column, name in functions.items())
