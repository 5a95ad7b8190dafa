"""Folds: equal to a dict, and equal however rows are grouped."""

from __future__ import annotations

import math
import re
from datetime import timezone
from decimal import Context, Decimal
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ftfile.core.errors import ConfigError, EncodingError, UserCodeError
from ftfile.kv.definition import DELETE, DELETED_MS, MERGE, OP, SET, StoreDefinition, define, ops_in
from ftfile.kv.fold import fold, fold_values
from ftfile.kv.merge_functions import merge_function
from tests.kit.parameters import parametrize
from tests.unit.kv.histories import Expected

if TYPE_CHECKING:
    from ftfile.kv.key_columns import Key

EXACT, UTC = Context(prec=50), timezone.utc
TYPES: dict[str, tuple[pa.DataType, st.SearchStrategy[Any]]] = {
    "sum": (pa.int64(), st.integers(-(1 << 40), 1 << 40)),
    "sum ": (pa.decimal256(57, 2), st.integers(-9999, 9999).map(lambda value: Decimal(value).scaleb(-2))),
    "min": (pa.string(), st.text(max_size=3)),
    "max": (pa.timestamp("us"), st.datetimes().map(lambda value: value.replace(microsecond=0))),
    "max ": (pa.decimal128(10, 2), st.integers(-9999, 9999).map(lambda value: Decimal(value).scaleb(-2))),
    "append": (pa.string(), st.text(max_size=3)),
    "append ": (
        pa.list_(pa.field("element", pa.int32())),
        st.lists(st.one_of(st.none(), st.integers(0, 9)), max_size=3),
    ),
    "append  ": (pa.binary(), st.binary(max_size=3)),
    "coalesce": (pa.bool_(), st.booleans()),
    "tests.unit.kv.user_merges:Longest": (pa.string(), st.text(max_size=3)),
}


@pytest.mark.packages
@pytest.mark.slow
@pytest.mark.parametrize("name", TYPES)
@given(data=st.data())
def test_functions_are_associative_and_keep_the_type(name: str, data: st.DataObject) -> None:
    kind, values = TYPES[name]
    combine = merge_function(name.strip()).combine
    rows = data.draw(st.lists(st.tuples(values, values, values), min_size=1, max_size=5))
    one, two, three = (pa.array(column, kind) for column in zip(*rows, strict=True))
    left, right = combine(combine(one, two), three), combine(one, combine(two, three))
    assert left.equals(right)
    assert left.type == kind
    assert left.null_count == 0


SINGLES = st.floats(width=32) | st.sampled_from([1.0, math.nan])
FLOATS = SINGLES | st.sampled_from([0.1, 1e16, -1e16])
DECIMALS = st.integers(-(10**38) + 1, 10**38 - 1).map(lambda value: Decimal(value).scaleb(-2, EXACT))
DAYS = st.datetimes().map(lambda value: value.replace(tzinfo=UTC))
# A function, the type of its column, and values.
MERGED: list[tuple[str, pa.DataType, st.SearchStrategy[Any]]] = [
    ("sum", pa.int64(), st.integers(-(1 << 63), (1 << 63) - 1) | st.integers(-9, 9)),
    ("sum", pa.float64(), FLOATS),
    ("sum", pa.decimal128(38, 2), DECIMALS),
    *((name, pa.float32(), SINGLES) for name in ("min", "max")),
    *((name, pa.float64(), FLOATS) for name in ("min", "max")),
    *((name, pa.decimal128(38, 2), DECIMALS) for name in ("min", "max", "coalesce")),
    *((name, pa.timestamp("us", "UTC"), DAYS) for name in ("min", "max")),
    *((name, pa.date32(), st.dates()) for name in ("min", "max")),
    *((name, pa.string(), st.text(max_size=3)) for name in ("min", "max", "append")),
    *((name, pa.binary(), st.binary(max_size=3)) for name in ("min", "max", "append")),
    *((name.strip(), *TYPES[name]) for name in ("append ", "tests.unit.kv.user_merges:Longest")),
    ("tests.unit.kv.user_merges:Balance", pa.int64(), st.integers(-3, 3)),
    ("last", pa.int64(), st.integers(-9, 9)),
]


@pytest.mark.packages
@parametrize("case", MERGED, quick=2, ids=lambda case: f"{case[0]}-{case[1]}")
@given(data=st.data())
def test_values_are_folded_as_rows(case: tuple[str, pa.DataType, st.SearchStrategy[Any]], data: st.DataObject) -> None:
    """For all operations, types and nulls: errors are equal as well."""
    name, kind, values = case
    schema = pa.schema([("k", pa.int64()), ("n", kind)])
    definition = define(schema, ["k"], merge=f"n:{name}").naming([name])
    assert definition.schema.field("n").type == kind
    rows = [data.draw(st.tuples(st.just(SET), st.none() | values) | st.just((DELETE, None)))]
    rows += [(MERGE, value) for value in data.draw(st.lists(st.none() | values, max_size=8))]
    stretches = [
        pa.table({"k": [7], "n": pa.array([value], kind), OP: pa.array([op], pa.int8())}) for op, value in rows
    ]
    stored = [(op, (stretch["n"][0].as_py(),)) for (op, _), stretch in zip(rows, stretches, strict=True)]
    try:
        expected = fold(stretches, definition, is_bottommost=True)["n"].to_pylist()
    except EncodingError as error:
        start, _, _ = str(error).partition("can hold")
        assert "key (7)" in start
        with pytest.raises(EncodingError, match=f"^{re.escape(start)}"):
            fold_values(stored[::-1], (7,), definition)
    else:
        folded = fold_values(stored[::-1], (7,), definition)
        assert repr([] if folded is None else [*folded]).replace("-0.0", "0.0") == repr(expected).replace("-0.0", "0.0")


STORES = (
    define(pa.schema([("k", pa.int32()), ("n", pa.int64()), ("m", pa.int64()), ("s", pa.string())]), ["k"]),
    *(
        define(
            pa.schema([("k", pa.int32()), ("n", pa.int64()), ("m", pa.int64()), ("s", pa.string())]), ["k"], merge=merge
        )
        for merge in ("n:sum,m:min,s:append", "n:max,s:coalesce", "m:sum")
    ),
)
NUMBER = st.one_of(st.none(), st.integers(-9, 9))
VALUES = st.tuples(NUMBER, NUMBER, st.one_of(st.none(), st.sampled_from(["", "a", "b"])))
ROWS = st.lists(
    st.tuples(st.sampled_from([SET, MERGE, MERGE, DELETE]), st.tuples(st.integers(0, 3)), VALUES), max_size=8
)


def table(definition: StoreDefinition, rows: list[Any]) -> pa.Table:
    columns = {name: [key[place] for _, key, _ in rows] for place, name in enumerate(definition.keys)}
    for place, name in enumerate(definition.values):
        columns[name] = [None if op == DELETE else values[place] for op, _, values in rows]
    made = pa.table({name: pa.array(columns[name], definition.schema.field(name).type) for name in columns})
    return made.append_column(pa.field(OP, pa.int8()), pa.array([op for op, _, _ in rows], pa.int8()))


def as_dict(rows: pa.Table, definition: StoreDefinition) -> dict[Key, tuple[Any, ...]]:
    return {
        tuple(row[name] for name in definition.keys): tuple(row[name] for name in definition.values)
        for row in rows.to_pylist()
    }


@pytest.mark.slow
@given(st.sampled_from(STORES), st.lists(ROWS, min_size=1, max_size=5), st.data())
def test_rows_are_those_of_a_dict_however_they_are_grouped(
    definition: StoreDefinition, batches: list[Any], data: st.DataObject
) -> None:
    purge = data.draw(st.one_of(st.none(), st.tuples(st.integers(0, len(batches) - 1), st.integers(0, 4))))
    purges = [(((purge[1],), (purge[1] + 2,)),) if purge and place == purge[0] else () for place in range(len(batches))]
    expected = Expected(definition)
    for place, batch in enumerate(batches):
        for each in purges[place]:
            expected.purge(each)
        for row in batch:
            expected.apply(row, 0)
    stretches = [table(definition, batch) for batch in batches]
    whole = fold(stretches, definition, is_bottommost=True, purges=purges)
    assert as_dict(whole, definition) == expected.rows
    assert OP not in whole.column_names
    assert whole["k"].to_pylist() == sorted(key[0] for key in expected.rows)
    start = data.draw(st.integers(0, len(batches) - 1))
    end = data.draw(st.integers(start + 1, len(batches)))
    part = fold(stretches[start:end], definition, is_bottommost=False, purges=purges[start:end])
    assert part["k"].to_pylist() == sorted(set(part["k"].to_pylist()))
    assert part.schema.remove_metadata().field("n") == definition.schema.field("n")
    own = tuple(each for place in range(start, end) for each in purges[place])
    again = fold(
        [*stretches[:start], part, *stretches[end:]],
        definition,
        is_bottommost=True,
        purges=[*purges[:start], own, *purges[end:]],
    )
    assert again.equals(whole)


class TestOperations:
    COUNTS = define(pa.schema([("k", pa.string()), ("n", pa.int64())]), ["k"], merge="n:sum")

    def folded(self, *rows: tuple[int, str, int | None], is_bottommost: bool = False) -> list[dict[str, Any]]:
        found = fold(
            [table(self.COUNTS, [(op, (key,), (n,)) for op, key, n in rows])], self.COUNTS, is_bottommost=is_bottommost
        )
        return [*found.to_pylist()]

    def test_merges_alone_stay_merges_above_the_bottom(self) -> None:
        assert self.folded((MERGE, "a", 1), (MERGE, "a", 2)) == [{"k": "a", "n": 3, OP: MERGE}]
        assert self.folded((MERGE, "a", 1), (MERGE, "a", 2), is_bottommost=True) == [{"k": "a", "n": 3}]

    def test_merges_after_a_delete_begin_anew(self) -> None:
        assert self.folded((SET, "a", 9), (DELETE, "a", None), (MERGE, "a", 2)) == [{"k": "a", "n": 2}]

    def test_deletes_leave_at_the_bottom_only(self) -> None:
        assert self.folded((SET, "a", 9), (DELETE, "a", None)) == [{"k": "a", "n": None, OP: DELETE}]
        assert self.folded((SET, "a", 9), (DELETE, "a", None), is_bottommost=True) == []

    def test_a_null_is_no_value(self) -> None:
        assert self.folded((MERGE, "a", None), (MERGE, "a", 2), (MERGE, "a", None), is_bottommost=True) == [
            {"k": "a", "n": 2}
        ]
        assert self.folded((MERGE, "a", None), (MERGE, "a", None), is_bottommost=True) == [{"k": "a", "n": None}]

    def test_nothing_at_all(self) -> None:
        assert self.folded() == []
        assert ops_in(fold([table(self.COUNTS, [])], self.COUNTS, is_bottommost=False)) == 0
        assert ops_in(table(self.COUNTS, [(DELETE, ("a",), (None,)), (SET, ("b",), (1,))])) == 0b101
        assert ops_in(table(self.COUNTS, [(SET, ("b",), (1,))]).drop_columns([OP])) == 0b1

    def test_columns_that_came_later_are_null_and_types_grow(self) -> None:
        wide = define(pa.schema([("k", pa.string()), ("n", pa.int64()), ("new", pa.string())]), ["k"], merge="n:sum")
        old = pa.table({"k": ["a", "b"], "n": pa.array([1, 2], pa.int32())})
        new = pa.table({"k": ["a"], "n": [5], "new": ["x"], OP: pa.array([MERGE], pa.int8())})
        assert fold([old, new], wide, is_bottommost=True).to_pylist() == [
            {"k": "a", "n": 6, "new": "x"},
            {"k": "b", "n": 2, "new": None},
        ]


LONG_MAX = 2**63 - 1
SUMS = [
    (pa.int64(), [LONG_MAX, 1, -5]),
    (pa.int64(), [-LONG_MAX, -5, 9, LONG_MAX]),
    (pa.decimal128(38, 0), [Decimal(9 * 10**37), Decimal(9 * 10**37), Decimal(-9 * 10**37)]),
]


class TestGroupings:
    """However the values of a key come together, their result is one."""

    def store(self, kind: pa.DataType, merge: str) -> StoreDefinition:
        return define(pa.schema([("k", pa.int32()), ("n", kind)]), ["k"], merge=f"n:{merge}")

    @pytest.mark.parametrize(("kind", "values"), SUMS)
    def test_a_sum_may_leave_its_column_on_the_way(self, kind: pa.DataType, values: list[Any]) -> None:
        store = self.store(kind, "sum")
        rows = [(MERGE, (1,), (value,)) for value in values]
        tables = [table(store, [row]) for row in rows]
        for inputs in ([table(store, rows)], tables, [*tables[::-1]]):
            assert fold(inputs, store, is_bottommost=True).to_pylist() == [{"k": 1, "n": sum(values)}]

    @pytest.mark.parametrize("values", [[1, -1, 5], [5, 1, -1], [1, -1, 2, -2, 5], [None, 1, -1, 5]])
    def test_a_result_that_is_null_is_no_value(self, values: list[int | None]) -> None:
        store = self.store(pa.int64(), "tests.unit.kv.user_merges:Balance")
        rows = [(MERGE, (1,), (value,)) for value in values]
        tables = [table(store, [row]) for row in rows]
        for place in range(1, len(rows)):
            first = fold(tables[:place], store, is_bottommost=False)
            for inputs in ([table(store, rows)], tables, [first, *tables[place:]]):
                assert fold(inputs, store, is_bottommost=True).to_pylist() == [{"k": 1, "n": 5}]

    def test_nothing_but_nulls_is_null(self) -> None:
        store = self.store(pa.int64(), "tests.unit.kv.user_merges:Balance")
        rows = [(MERGE, (1,), (value,)) for value in (3, -3)]
        assert fold([table(store, rows)], store, is_bottommost=True).to_pylist() == [{"k": 1, "n": None}]


class TestFailures:
    def test_a_sum_that_does_not_fit_names_its_key(self) -> None:
        store = define(pa.schema([("k", pa.string()), ("j", pa.int32()), ("n", pa.int64())]), ["k", "j"], merge="n:sum")
        rows = [(MERGE, (f"k{number}", number), (1 << 62 if number == 7 else number,)) for number in range(20)]
        stretch = table(store, rows)
        with pytest.raises(EncodingError, match=r"merge=n:sum: the values of key \('k7', 7\) have no result"):
            fold([stretch.slice(0, 7), stretch, stretch.slice(7, 1)], store, is_bottommost=True)
        after = table(store, [(SET, ("k7", 7), (1,))])
        assert fold([stretch, stretch.slice(7, 1), after], store, is_bottommost=True).num_rows == 20

    def test_a_sum_of_values_that_does_not_fit_names_its_key(self) -> None:
        store = define(pa.schema([("k", pa.int64()), ("n", pa.int64())]), ["k"], merge="n:sum")
        with pytest.raises(EncodingError, match=r"merge=n:sum: the values of key \(7\) have no result"):
            fold_values([(MERGE, (1 << 62,)), (SET, (1 << 62,))], (7,), store)

    def test_a_sum_of_decimals_that_does_not_fit_names_its_key(self) -> None:
        store = define(pa.schema([("k", pa.int64()), ("d", pa.decimal128(38, 0))]), ["k"], merge="d:sum")
        most = Decimal(10**38 - 1)
        rows = [(MERGE, (number,), (most if number == 3 else Decimal(1),)) for number in range(5)]
        with pytest.raises(EncodingError, match=r"key \(3\)"):
            fold([table(store, rows), table(store, rows)], store, is_bottommost=True)

    def store(self, name: str) -> StoreDefinition:
        return define(
            pa.schema([("k", pa.int64()), ("s", pa.string())]), ["k"], merge=f"tests.unit.kv.user_merges:{name}"
        )

    def test_a_function_of_the_user_that_fails_names_the_key(self) -> None:
        store = self.store("Picky")
        rows = [(MERGE, (number,), ("x" if number == 4 else "y",)) for number in range(9)]
        with pytest.raises(UserCodeError, match=r"combine\(\) failed for key \(4\): RuntimeError\('an x'\)"):
            fold([table(store, rows), table(store, rows)], store, is_bottommost=True)

    def test_a_function_of_the_user_that_loses_rows(self) -> None:
        store = self.store("Short")
        rows = [(MERGE, (number,), ("y",)) for number in range(9)]
        with pytest.raises(UserCodeError, match="combine"):
            fold([table(store, [*rows, *rows]), table(store, rows)], store, is_bottommost=True)

    def test_a_class_that_cannot_be_made(self) -> None:
        with pytest.raises(UserCodeError, match="Unmakeable"):
            self.store("Unmakeable")
        with pytest.raises(ConfigError, match="nonsense"):
            merge_function("nonsense")


class TestSequence:
    STORE = define(pa.schema([("k", pa.string()), ("seq", pa.int64()), ("v", pa.string())]), ["k"], sequence="seq")

    def stretch(self, *rows: tuple[int, str, int, str | None, int | None]) -> pa.Table:
        ops, keys, sequences, values, deleted = zip(*rows, strict=True)
        return pa.table(
            {
                "k": keys,
                "seq": sequences,
                "v": pa.array(values, pa.string()),
                DELETED_MS: pa.array(deleted, pa.int64()),
                OP: pa.array(ops, pa.int8()),
            }
        )

    def test_the_greatest_wins_and_of_equals_the_last(self) -> None:
        old = self.stretch((SET, "a", 5, "five", None), (SET, "b", 1, "one", None))
        new = self.stretch((SET, "a", 3, "three", None), (SET, "b", 1, "uno", None))
        found = fold([old, new], self.STORE, is_bottommost=True).to_pylist()
        assert found == [{"k": "a", "seq": 5, "v": "five"}, {"k": "b", "seq": 1, "v": "uno"}]

    def test_a_deleted_row_stays_deleted_until_its_time_is_over(self) -> None:
        deleted = self.stretch((DELETE, "a", 5, None, 1000))
        late = self.stretch((SET, "a", 3, "three", None))
        for expired_ms in (None, 1000):
            kept = fold([deleted], self.STORE, is_bottommost=True, expired_ms=expired_ms)
            assert kept[OP].to_pylist() == [DELETE]
            assert DELETED_MS in kept.column_names
            assert fold([kept, late], self.STORE, is_bottommost=True)[OP].to_pylist() == [DELETE]
        assert fold([deleted], self.STORE, is_bottommost=True, expired_ms=1001).num_rows == 0
        assert fold([deleted], self.STORE, is_bottommost=False, expired_ms=1001).num_rows == 1
        again = self.stretch((SET, "a", 6, "six", None))
        assert fold([deleted, again], self.STORE, is_bottommost=True).to_pylist() == [{"k": "a", "seq": 6, "v": "six"}]
