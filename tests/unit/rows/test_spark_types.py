from __future__ import annotations

import json
from typing import Any

import pyarrow as pa
import pytest

from ftfile.core.errors import SchemaError
from ftfile.rows.spark_types import arrow_schema, as_nullable, spark_schema_json, sql_type


def column(name: str, kind: Any, **more: Any) -> dict[str, Any]:
    return {"name": name, "type": kind, "nullable": True, "metadata": {}, **more}


def struct(*fields: dict[str, Any]) -> dict[str, Any]:
    return {"type": "struct", "fields": list(fields)}


def refusals(*fields: dict[str, Any]) -> list[str]:
    with pytest.raises(SchemaError) as caught:
        arrow_schema(json.dumps(struct(*fields)))
    return [line.strip() for line in str(caught.value).splitlines()[1:]]


def test_there_and_back() -> None:
    text = (
        '{"fields":[{"metadata":{},"name":"t","nullable":false,"type":"timestamp"},'
        '{"metadata":{},"name":"n","nullable":true,"type":"timestamp_ntz"},'
        '{"metadata":{},"name":"c","nullable":true,"type":"time(6)"},'
        '{"metadata":{},"name":"d","nullable":true,"type":"decimal(38,18)"},'
        '{"metadata":{},"name":"l","nullable":true,"type":{"containsNull":false,"elementType":"byte","type":"array"}},'
        '{"metadata":{},"name":"m","nullable":true,"type":{"keyType":"string","type":"map",'
        '"valueContainsNull":false,"valueType":"date"}}],"type":"struct"}'
    )
    schema = arrow_schema(text)
    assert schema.field("t") == pa.field("t", pa.timestamp("us", tz="UTC"), nullable=False)
    assert schema.field("n").type == pa.timestamp("us")
    assert schema.field("c").type == pa.time64("us")
    assert spark_schema_json(schema) == text


def test_everything_becomes_nullable_at_every_depth_and_nothing_else_changes() -> None:
    items = {"type": "array", "elementType": struct(column("x", "long", nullable=False)), "containsNull": False}
    scores = {"type": "map", "keyType": "string", "valueType": items, "valueContainsNull": False}
    about = {"comment": "nullable", "nullable": False}
    nullable = json.loads(as_nullable(json.dumps(struct(column("m", scores, nullable=False, metadata=about)))))
    assert nullable == struct(
        column(
            "m",
            {
                **scores,
                "valueType": {**items, "elementType": struct(column("x", "long")), "containsNull": True},
                "valueContainsNull": True,
            },
            metadata=about,
        )
    )


def test_every_bad_column_is_in_one_error_with_a_remedy() -> None:
    assert refusals(
        column("v", "geometry(4326)"),
        column("ok", "string"),
        column("s", struct(column("t", "time(3)"), column("x", "void"))),
        column("i", "interval"),
    ) == [
        "column `v`: type geometry(4326) cannot be stored; store it as WKB: st_asbinary(column)",
        "column `s.t`: type time(3) cannot be stored; only TIME(6) is supported: cast(column AS TIME(6))",
        "column `s.x`: type void cannot be stored; give it a type: cast(column AS STRING)",
        "column `i`: type interval cannot be stored; store it as a string, or as a number of months or microseconds",
    ]


def test_names_that_differ_by_case_only_are_refused() -> None:
    inner = struct(column("x", "long"), column("x", "long"))
    assert refusals(column("Id", "long"), column("iD", "long"), column("s", inner)) == [
        "column `id`: 2 columns have this name (case aside); give them different names",
        "column `s.x`: 2 columns have this name (case aside); give them different names",
    ]


def test_collations_in_metadata_and_in_type_text() -> None:
    collated = {"__COLLATIONS": {"l.element": "icu.UNICODE", "l": "spark.UTF8_BINARY"}}
    element = {"type": "array", "elementType": "string", "containsNull": True}
    found = refusals(column("l", element, metadata=collated), column("c", "string collate UTF8_LCASE"))
    assert [line.split(";")[0] for line in found] == [
        "column `l.element`: a string with collation UNICODE cannot be stored",
        "column `c`: a string with collation UTF8_LCASE cannot be stored",
    ]
    assert arrow_schema(json.dumps(struct(column("c", "string collate UTF8_BINARY")))).types == [pa.string()]


@pytest.mark.parametrize("kind", ["decimal(39,0)", "decimal(5,6)", "decimal(5,-1)", "decimal(0,0)", "unheard_of"])
def test_other_types_are_refused(kind: str) -> None:
    (line,) = refusals(column("v", kind))
    assert kind in line


def test_empty_schemas_are_refused() -> None:
    assert refusals() == ["the schema has no columns; select at least one column"]
    assert refusals(column("s", struct())) == ["column `s`: a struct without fields cannot be stored; drop the column"]


@pytest.mark.parametrize("text", ["", "[]", "{}", '"long"'])
def test_other_text_is_refused(text: str) -> None:
    with pytest.raises(SchemaError, match="not the JSON text of a Spark StructType"):
        arrow_schema(text)


def test_arrow_types_that_spark_does_not_send_are_refused() -> None:
    with pytest.raises(SchemaError, match=r"column `v.element`: the type uint8 cannot be stored"):
        spark_schema_json(pa.schema([("v", pa.list_(pa.uint8()))]))


def test_names_of_fields_are_quoted_in_sql() -> None:
    field = {"name": "a`:int>, `b", "type": "long", "nullable": True, "metadata": {}}
    kind = {"type": "array", "elementType": {"type": "struct", "fields": [field]}, "containsNull": True}
    assert sql_type(kind) == "array<struct<`a``:int>, ``b`:bigint>>"
