"""Routing: every row reaches the directory of its values, once, in order."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ftfile.core.errors import EncodingError
from ftfile.formats.partition_paths import NULL_NAME, partition_names
from ftfile.writing.bad_records import raise_fault
from ftfile.writing.files.directories import PartitionColumn, Router

if TYPE_CHECKING:
    from collections.abc import Sequence

keys = {
    "text": st.none() | st.sampled_from([" ", "a", "b", "a/b"]),
    "number": st.none() | st.integers(0, 3),
    "real": st.none() | st.sampled_from([0.0, -0.0, 1.5, float("nan")]),
}
KEYS = [("text", pa.string()), ("number", pa.int16()), ("real", pa.float64())]
SCHEMA = pa.schema([*KEYS, ("place", pa.int64()), ("payload", pa.string())])


def route(batch: pa.RecordBatch, columns: list[str], time_zone: str = "UTC") -> list[tuple[str, pa.RecordBatch]]:
    """The directory of each row by name, as the sink's tasks see it."""
    rows, directories = Router([PartitionColumn(column, time_zone) for column in columns], raise_fault).route(batch)
    return [(directory, rows.slice(start, count)) for directory, start, count in directories]


def batch_of(rows: list[dict[str, Any]]) -> pa.RecordBatch:
    return pa.RecordBatch.from_pylist(
        [{**row, "place": place, "payload": f"row {place}"} for place, row in enumerate(rows)], SCHEMA
    )


@pytest.mark.slow
@given(
    rows=st.lists(st.fixed_dictionaries(keys), max_size=60),
    columns=st.permutations(list(keys)).flatmap(lambda names: st.sampled_from([names[:1], names[:2], names])),
    skip=st.integers(0, 3),
)
def test_rows_reach_their_directories_in_order(rows: list[dict[str, Any]], columns: list[str], skip: int) -> None:
    batch = batch_of(rows).slice(skip)
    expected: dict[str, list[dict[str, Any]]] = {}
    for index, row in enumerate(batch.to_pylist()):
        path = "/".join(
            name for column in columns for name in partition_names(column, batch.column(column).slice(index, 1))
        )
        expected.setdefault(path, []).append({name: row[name] for name in row if name not in columns})
    routed = [(path, part.to_pylist()) for path, part in route(batch, columns)]
    assert repr(routed) == repr(list(expected.items()))


def test_directories_are_named_once() -> None:
    batch = pa.record_batch({"k": [None, "a", None, "a", None], "n": [0, 1, 2, 3, 4]})
    assert [(path, part["n"].to_pylist()) for path, part in route(batch, ["k"])] == [
        (f"k={NULL_NAME}", [0, 2, 4]),
        ("k=a", [1, 3]),
    ]


def test_dictionaries_are_routed_like_their_values() -> None:
    values = pa.DictionaryArray.from_arrays([1, None, 0, 1, 2], ["a", "b", "a"])
    batch = pa.record_batch({"k": values, "n": [0, 1, 2, 3, 4]})
    assert [(path, part["n"].to_pylist()) for path, part in route(batch, ["k"])] == [
        ("k=b", [0, 3]),
        (f"k={NULL_NAME}", [1]),
        ("k=a", [2, 4]),
    ]


def test_columns_that_are_in_the_path_are_not_in_the_rows() -> None:
    batch = pa.record_batch({"k": ["b", "a", "b"], "n": [0, 1, 2]})
    assert [part.schema.names for _, part in route(batch, ["k"])] == [["n"], ["n"]]


def test_rows_that_are_in_order_are_not_copied() -> None:
    batch = pa.record_batch({"k": ["b", "b", "a"], "n": [0, 1, 2]})
    addresses = {part["n"].buffers()[1].address for _, part in route(batch, ["k"])}
    assert addresses == {batch["n"].buffers()[1].address}


@pytest.mark.slow
def test_many_directories() -> None:
    count = 70_000
    batch = pa.record_batch({"k": [*range(count - 1, -1, -1)] * 2, "n": range(2 * count)})
    routed = route(batch, ["k"])
    assert len(routed) == count
    assert routed[0][0] == f"k={count - 1}"
    assert routed[-1][1]["n"].to_pylist() == [count - 1, 2 * count - 1]


def test_timestamps_are_shown_in_the_zone() -> None:
    batch = pa.record_batch({"k": pa.array([0], pa.timestamp("us", "UTC")), "n": [1]})
    assert [path for path, _ in route(batch, ["k"], time_zone="Asia/Tokyo")] == ["k=1970-01-01 09%3A00%3A00"]


def test_no_rows() -> None:
    assert route(batch_of([]), ["text"]) == []


def test_a_value_without_a_path_names_its_column() -> None:
    batch = pa.record_batch({"day": ["1"], "k": ["x" * 300], "n": [1]})
    with pytest.raises(EncodingError, match="column 'k'"):
        route(batch, ["day", "k"])


class TestRowsWithoutADirectory:
    def refused(self, batch: pa.RecordBatch, columns: list[str]) -> tuple[list[int], list[str], list[list[int]]]:
        """Route and return the rows that were refused, why, and the rows of each directory, all by their `n`."""
        numbers: list[int] = []
        reasons: list[str] = []

        def take(rows: pa.RecordBatch, faults: Sequence[str]) -> None:
            numbers.extend(rows["n"].to_pylist())
            reasons.extend(faults)
            assert rows.schema == batch.schema

        rows, directories = Router([PartitionColumn(column, "UTC") for column in columns], take).route(batch)
        return numbers, reasons, [rows["n"].to_pylist()[start:][:count] for _, start, count in directories]

    def test_are_handed_over_with_the_reason(self) -> None:
        long, longer = "x" * 300, "y" * 300
        batch = pa.record_batch({"k": [long, "a", "b", longer, "a", long], "n": range(6)})
        numbers, reasons, directories = self.refused(batch, ["k"])
        assert numbers == [0, 3, 5]
        assert [reason[reason.index("'k=") + 3] for reason in reasons] == ["x", "y", "x"]
        assert directories == [[1, 4], [2]]

    def test_in_one_column_or_another(self) -> None:
        long = "x" * 300
        batch = pa.record_batch({"j": ["a", long, "a", "b", long], "k": [long, "b", "a", "b", long], "n": range(5)})
        numbers, reasons, directories = self.refused(batch, ["j", "k"])
        assert numbers == [0, 1, 4]
        assert [reason.split("'")[1] for reason in reasons] == ["k", "j", "j"]
        assert directories == [[2], [3]]

    def test_all_of_them(self) -> None:
        batch = pa.record_batch({"k": ["x" * 300] * 3, "n": range(3)})
        assert self.refused(batch, ["k"])[::2] == ([0, 1, 2], [])
