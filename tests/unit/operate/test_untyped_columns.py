"""Columns without values, which libraries export with the type null, have the types of earlier rows."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

import ftfile
from ftfile.core.errors import SchemaError
from ftfile.operate.writers.untyped_columns import has_untyped, with_types_of
from ftfile.testing.context import current
from tests.kit.parameters import parametrize

if TYPE_CHECKING:
    from pathlib import Path

TYPED = pa.schema(
    {
        "id": pa.int64(),
        "day": pa.date32(),
        "price": pa.decimal128(9, 2),
        "at": pa.timestamp("us", "UTC"),
        "tags": pa.list_(pa.struct({"name": pa.string(), "weights": pa.list_(pa.float64())})),
        "place": pa.struct({"city": pa.string(), "code": pa.binary()}),
        "counts": pa.map_(pa.string(), pa.int64()),
    }
)
FULL = pa.Table.from_pylist(
    [
        {
            "id": 1,
            "day": 2,
            "price": 3,
            "at": 4,
            "tags": [{"name": "a", "weights": [1.5]}],
            "place": {"city": "b", "code": b"c"},
            "counts": [("d", 5)],
        }
    ],
    schema=TYPED,
)
# Rows as a program reads them from JSON, and the same rows with types.
EMPTY: list[list[dict[str, Any]]] = [
    [dict.fromkeys(TYPED.names)],
    [dict.fromkeys(TYPED.names) | {"id": 2, "tags": []}],
    [dict.fromkeys(TYPED.names) | {"id": 2, "tags": [{"name": None, "weights": []}, None]}],
    [dict.fromkeys(TYPED.names) | {"id": 2, "place": {"city": None, "code": None}}, dict.fromkeys(TYPED.names)],
]


def rows_of(out: str) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = ftfile.open(out, context=current()).to_arrow().to_pylist()
    return rows


@parametrize("rows", EMPTY, ids=["null", "empty list", "null in a list", "null in a struct"], quick=4)
@parametrize("file_format", ["parquet", "json", "avro"], quick=2)
def test_later_rows_have_earlier_types(tmp_path: Path, rows: list[dict[str, Any]], file_format: str) -> None:
    out, untyped = str(tmp_path / "out"), pa.Table.from_pylist(rows)
    assert has_untyped(untyped.schema)
    options: dict[str, Any] = {"file_format": file_format, "context": current()}
    ftfile.write(out, FULL, **options)
    ftfile.write(out, untyped, **options)
    with ftfile.writer(out, "orders", **options) as writer:
        writer.write(untyped)
        writer.write(FULL)
        writer.write(untyped)
        writer.commit(1)
    expected = pa.Table.from_pylist(rows, schema=TYPED).to_pylist()
    read = rows_of(out)
    assert len(read) == 2 + 3 * len(rows)
    for row in expected:
        assert read.count(row) >= 3
    assert (
        ftfile.open(out)
        .to_arrow()
        .schema.field("tags")
        .type.equals(pa.list_(pa.field("element", TYPED.field("tags").type.value_type)))
    )


def test_columns_without_a_known_type_are_an_error(tmp_path: Path) -> None:
    out, untyped = str(tmp_path / "out"), pa.table({"id": [1], "new": pa.nulls(1)})
    for _ in range(2):
        with pytest.raises(SchemaError, match=r"`new`: it has no type.*schema=schema"):
            ftfile.write(out, untyped, file_format="json", context=current())
        with (
            ftfile.writer(out, "orders", file_format="json", context=current()) as writer,
            pytest.raises(SchemaError, match="`new`"),
        ):
            writer.write(untyped)
        ftfile.write(out, untyped.select(["id"]), file_format="json", context=current())
    assert [row["id"] for row in rows_of(out)] == [1, 1]


def test_an_overwrite_has_the_types_of_the_replaced_rows(tmp_path: Path) -> None:
    out = str(tmp_path / "out")
    ftfile.write(out, FULL, file_format="json", context=current())
    ftfile.write(out, pa.Table.from_pylist(EMPTY[1]), file_format="json", mode="overwrite", context=current())
    assert rows_of(out) == EMPTY[1]


@pytest.mark.parametrize(
    ("untyped", "known", "expected"),
    [
        (pa.null(), pa.int8(), pa.int8()),
        (pa.large_list(pa.null()), pa.list_(pa.int8()), pa.list_(pa.int8())),
        (pa.list_(pa.null()), pa.int8(), pa.list_(pa.null())),  # another type: an error follows
        (pa.struct({"a": pa.null(), "b": pa.null()}), pa.struct({"b": pa.int8()}), None),
        (pa.int64(), pa.int8(), pa.int64()),
    ],
)
def test_types_of_other_kinds_stay(untyped: pa.DataType, known: pa.DataType, expected: pa.DataType | None) -> None:
    typed = with_types_of(pa.schema({"c": untyped}), pa.schema({"c": known}))
    assert typed.field("c").type.equals(expected or pa.struct({"a": pa.null(), "b": pa.int8()}))
