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


NO_CATEGORY = pa.dictionary(pa.int8(), pa.null())  # of a column of pandas without values


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
        (pa.list_(pa.null(), 2), pa.list_(pa.int8()), pa.list_(pa.int8())),
        (pa.list_view(pa.null()), pa.list_(pa.int8()), pa.list_(pa.int8())),
        (pa.large_list_view(pa.null()), pa.list_(pa.int8()), pa.list_(pa.int8())),
        (pa.map_(NO_CATEGORY, pa.null()), pa.map_(pa.string(), pa.int8()), pa.map_(pa.string(), pa.int8())),
        (pa.map_(pa.string(), pa.null()), pa.map_(pa.string(), pa.int8()), pa.map_(pa.string(), pa.int8())),
        (pa.map_(pa.large_string(), pa.null()), pa.map_(pa.int8(), pa.int8()), pa.map_(pa.large_string(), pa.int8())),
        (NO_CATEGORY, pa.string(), pa.string()),
        (pa.list_(NO_CATEGORY), pa.list_(pa.string()), pa.list_(pa.string())),
        (pa.list_(pa.null()), pa.int8(), pa.list_(pa.null())),  # another type: an error follows
        (pa.map_(pa.string(), pa.null()), pa.int8(), pa.map_(pa.string(), pa.null())),
        (pa.list_(pa.null(), 2), pa.map_(pa.int8(), pa.int8()), pa.list_(pa.null(), 2)),
        (pa.struct({"a": pa.null(), "b": pa.null()}), pa.struct({"b": pa.int8()}), None),
        (pa.int64(), pa.int8(), pa.int64()),
    ],
)
def test_types_of_other_kinds_stay(untyped: pa.DataType, known: pa.DataType, expected: pa.DataType | None) -> None:
    typed = with_types_of(pa.schema({"c": untyped}), pa.schema({"c": known}))
    assert typed.field("c").type.equals(expected or pa.struct({"a": pa.null(), "b": pa.int8()}))


DEEP = pa.struct({"a": pa.list_(pa.map_(pa.string(), pa.list_(pa.struct({"x": pa.int64(), "y": pa.string()}))))})
NULLS: dict[str, tuple[pa.DataType, pa.Array]] = {
    "values of a map": (
        pa.map_(pa.string(), pa.int64()),
        pa.array([[("a", None), ("b", None)], [], None], pa.map_(pa.string(), pa.null())),
    ),
    "values of a map with other texts": (
        pa.map_(pa.string(), pa.struct({"x": pa.int64()})),
        pa.array([[("a", None)], [("b", {"x": None})]], pa.map_(pa.large_string(), pa.struct({"x": pa.null()}))),
    ),
    "an empty map": (pa.map_(pa.string(), pa.int64()), pa.array([[], None], pa.map_(pa.string(), pa.null()))),
    "fixed-size list": (
        pa.list_(pa.int64()),
        pa.array([[None, None], None, [None, None]], pa.list_(pa.null(), 2)),
    ),
    "fixed-size lists in a map": (
        pa.map_(pa.string(), pa.list_(pa.list_(pa.string()))),
        pa.array([[("a", [[None]])], None, [("b", None)]], pa.map_(pa.string(), pa.list_(pa.list_(pa.null(), 1), 1))),
    ),
    "deep": (
        DEEP,
        pa.array(
            [{"a": [[("k", [{"x": None, "y": "t"}, None])], None, []]}, {"a": None}, None],
            pa.struct({"a": pa.list_(pa.map_(pa.string(), pa.list_(pa.struct({"x": pa.null(), "y": pa.string()}))))}),
        ),
    ),
    "categories": (pa.string(), pa.array([None, None]).dictionary_encode()),
    "list of categories": (
        pa.list_(pa.string()),
        pa.ListArray.from_arrays(pa.array([0, 2, 2], pa.int32()), pa.array([None, None]).dictionary_encode()),
    ),
}


@pytest.mark.parametrize("name", NULLS)
def test_untyped_values_at_any_depth_have_earlier_types(tmp_path: Path, name: str) -> None:
    kind, values = NULLS[name]
    first = pa.table({"n": [0], "v": pa.array([None], kind)})
    for part in (values, values.slice(1)):
        untyped = pa.table({"n": pa.array(range(1, len(part) + 1)), "v": part})
        with pytest.raises(SchemaError, match=r"`v.*it has no type"):
            ftfile.write(tmp_path / "first", untyped, file_format="parquet", context=current())
        out = str(tmp_path / f"out{len(part)}")
        ftfile.write(out, first, file_format="parquet", context=current())
        ftfile.write(out, untyped, context=current())
        with ftfile.writer(out, "earlier", context=current()) as writer:
            writer.write(first)
            writer.write(untyped)
            writer.commit(1)
        read = ftfile.open(out, context=current()).to_arrow()
        expected = [*first.to_pylist(), *untyped.to_pylist()]
        assert len(read) == 2 * len(expected)
        for row in read.to_pylist():
            assert expected.count(row) == 1
