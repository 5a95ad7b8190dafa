"""Large batches are divided before their columns are converted to types with 32-bit offsets."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pytest

import ftfile
from ftfile.core.errors import SchemaError
from ftfile.operate.writers import arrow_rows, row_pieces
from ftfile.testing.context import current

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

pl = pytest.importorskip("polars")

BATCH_BYTES = 1000
TEXTS = ["x" * (number * 37 % 400) if number % 5 else None for number in range(60)]
COUNTED = sum(len(text or "") for text in TEXTS)


def texts(kind: pa.DataType) -> pa.Array:
    return pa.array(TEXTS, pa.string()).cast(kind)


def lists(elements: pa.Array, kind: Any = pa.LargeListArray) -> pa.Array:
    """Return lists of 0, 1, 2, 0, 1, 2… elements."""
    offsets = np.append(0, np.cumsum(np.arange(len(elements)) % 3))
    return kind.from_arrays(pa.array(offsets, pa.int64() if kind is pa.LargeListArray else pa.int32()), elements)


def maps(values: pa.Array) -> pa.Array:
    return pa.MapArray.from_arrays(pa.array(range(len(values) + 1), pa.int32()), pa.array(range(len(values))), values)


LARGE: dict[str, pa.Array] = {
    "large text": texts(pa.large_string()),
    "large binary": texts(pa.large_binary()),
    "text": texts(pa.string()),
    "text view": texts(pa.string_view()),
    "binary view": texts(pa.large_binary()).cast(pa.binary_view()),
    "dictionary": texts(pa.large_string()).dictionary_encode(),
    "dictionary with one long text": pa.DictionaryArray.from_arrays(pa.array([0, None] * 30), pa.array(["x" * 700])),
    "dictionary of views": pa.DictionaryArray.from_arrays(
        pa.array([0] * 60, pa.uint8()), pa.array(["x" * 700], pa.string_view())
    ),
    "lists of texts": lists(texts(pa.large_string())),
    "lists of views": lists(texts(pa.string_view())),
    "lists of categories": lists(texts(pa.string()).dictionary_encode(), pa.ListArray),
    "lists of lists": lists(lists(texts(pa.large_string()))),
    "lists of numbers": pa.LargeListArray.from_arrays(pa.array(range(0, 9003, 150), pa.int64()), pa.array(range(9000))),
    "lists of booleans": pa.LargeListArray.from_arrays(
        pa.array(range(0, 60001, 1000), pa.int64()), pa.array([True, None] * 30000)
    ),
    "fixed-size lists": pa.FixedSizeListArray.from_arrays(pa.array(range(3600)), 60),
    "struct": pa.StructArray.from_arrays([texts(pa.large_string()), texts(pa.string_view())], ["a", "b"]),
    "map": maps(texts(pa.large_string())),
    "fixed-size binary": pa.array([b"x" * 300] * 60, pa.binary(300)),
}


@pytest.fixture(autouse=True)
def _small(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(arrow_rows, "BATCH_BYTES", BATCH_BYTES)


@pytest.mark.parametrize("array", LARGE.values(), ids=LARGE)
@pytest.mark.parametrize("start", [0, 7])
def test_no_piece_has_more_bytes_than_the_limit(array: pa.Array, start: int) -> None:
    """Each piece has one row, or values within the limit; and pieces are not smaller than necessary."""
    part = array.slice(start)
    rows = arrow_rows.arrow_rows(pa.table({"n": pa.array(range(len(part))), "v": part}))
    batches = list(rows.batches)
    assert len(batches) > 5
    for batch in batches:
        batch.validate(full=True)
        assert batch.num_rows == 1 or batch["v"].nbytes <= BATCH_BYTES
    for first, second in itertools.pairwise(batches):
        assert first["v"].nbytes + second["v"].nbytes > BATCH_BYTES // 3
    table = pa.Table.from_batches(batches, rows.schema)
    assert table["n"].to_pylist() == list(range(len(part)))
    assert table["v"].to_pylist() == part.to_pylist()


def test_many_lists_are_counted_in_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    array = lists(texts(pa.large_string()))
    whole = [batch.num_rows for batch in arrow_rows.arrow_rows(pa.table({"v": array})).batches]
    for at_once in (1, 7, len(array) - 1):
        monkeypatch.setattr(row_pieces, "LISTS_AT_ONCE", at_once)
        assert [batch.num_rows for batch in arrow_rows.arrow_rows(pa.table({"v": array})).batches] == whole


def test_the_bytes_of_all_columns_are_counted() -> None:
    columns = {f"c{number}": pa.array(["x" * 90] * 10) for number in range(10)}
    batches = list(arrow_rows.arrow_rows(pa.table(columns)).batches)
    assert [batch.num_rows for batch in batches] == [1] * 10


def test_no_rows_and_small_rows_are_not_divided() -> None:
    for rows in (10, 0):
        table = pa.table({"n": pa.array(range(rows), pa.int64()), "v": pa.array(["x"] * rows, pa.string_view())})
        assert [batch.num_rows for batch in arrow_rows.arrow_rows(table).batches] == [rows] * bool(rows)


@pytest.mark.parametrize("array", LARGE.values(), ids=LARGE)
def test_a_value_that_is_too_long_is_an_error(array: pa.Array, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(arrow_rows, "BATCH_BYTES", 250)
    monkeypatch.setattr(row_pieces, "VALUE_BYTES_MAX", 250)
    with pytest.raises(SchemaError, match=r"column `v`: a value has \d+ bytes, and a value of Spark has at most 250"):
        list(arrow_rows.arrow_rows(pa.table({"n": pa.array(range(len(array))), "v": array})).batches)


def test_a_frame_of_long_texts_is_read_back(tmp_path: Path) -> None:
    out, frame = str(tmp_path / "out"), pl.DataFrame({"n": range(60), "v": TEXTS, "l": [[text] for text in TEXTS]})
    ftfile.write(out, frame, file_format="json", context=current())
    with ftfile.writer(out, "app", context=current()) as writer:
        writer.write(frame)
        writer.commit(1)
    read = ftfile.open(out, context=current()).to_arrow().sort_by("n")
    assert read["v"].to_pylist() == [text for text in TEXTS for _ in range(2)]
    assert read["l"].to_pylist() == [[text] for text in TEXTS for _ in range(2)]


MIB = 1 << 20
ROWS = 2100  # of 1 MiB each


def zeros(size: int) -> pa.Buffer:
    """Return a buffer whose pages the system does not allocate until they are written."""
    return pa.py_buffer(np.zeros(size, np.uint8))


def gigabytes(kind: pa.DataType) -> pa.Array:
    offsets = pa.py_buffer(np.arange(ROWS + 1, dtype=np.int64) * MIB)
    return pa.Array.from_buffers(kind, ROWS, [None, offsets, zeros(ROWS * MIB)])


def numbers() -> pa.Array:
    elements = pa.Array.from_buffers(pa.int8(), ROWS * MIB, [None, zeros(ROWS * MIB)])
    return pa.LargeListArray.from_arrays(pa.array(np.arange(ROWS + 1, dtype=np.int64) * MIB), elements)


GIGABYTES: dict[str, Callable[[], pa.Array]] = {
    "text": lambda: gigabytes(pa.large_string()),
    "binary": lambda: gigabytes(pa.large_binary()),
    "view": lambda: pl.Series(["x" * MIB]).new_from_index(0, ROWS).to_arrow(compat_level=pl.CompatLevel.newest()),
    "dictionary": lambda: pa.DictionaryArray.from_arrays(pa.array(np.zeros(ROWS, np.int8)), pa.array(["x" * MIB])),
    "lists of texts": lambda: lists(gigabytes(pa.large_string())),
    "lists of numbers": numbers,
    "map": lambda: maps(gigabytes(pa.large_string())),
    "struct": lambda: pa.StructArray.from_arrays([gigabytes(pa.large_string())], ["a"]),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", GIGABYTES)
def test_more_than_2_gib_in_one_column(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.undo()
    array = GIGABYTES[name]()
    rows = size_bytes = 0
    for batch in arrow_rows.arrow_rows(pa.table({"v": array})).batches:
        batch.validate()
        rows, size_bytes = rows + batch.num_rows, size_bytes + batch.nbytes
        assert batch.nbytes <= arrow_rows.BATCH_BYTES
    assert rows == len(array)
    assert size_bytes > row_pieces.VALUE_BYTES_MAX


@pytest.mark.slow
def test_one_value_of_more_than_2_gib_is_an_error() -> None:
    offsets = pa.py_buffer(np.array([0, 3, ROWS * MIB], np.int64))
    array = pa.Array.from_buffers(pa.large_string(), 2, [None, offsets, zeros(ROWS * MIB)])
    with pytest.raises(SchemaError, match=r"column `v`: a value has 2202009601 bytes"):
        list(arrow_rows.arrow_rows(pa.table({"v": array})).batches)
