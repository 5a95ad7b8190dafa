"""Schemas of directories as Spark types: parsed with Spark's results, but without importing code as Spark does."""

from __future__ import annotations

import json
import sys
from typing import TYPE_CHECKING, Any

import pytest
from pyspark.sql.types import StructType

from ftfile.errors import CorruptData
from ftfile.spark.settings import struct_type
from ftfile.testing.micro_batch import spark_schema

if TYPE_CHECKING:
    from pathlib import Path

ATOMIC = [
    "boolean",
    "byte",
    "short",
    "integer",
    "long",
    "float",
    "double",
    "string",
    "binary",
    "date",
    "timestamp",
    "timestamp_ntz",
    "time(6)",
    "variant",
    "decimal",
    "decimal(38,18)",
    "char(3)",
    "varchar(5)",
]
ARRAY = {"type": "array", "elementType": "date", "containsNull": False}
NESTED: tuple[dict[str, Any], ...] = (
    ARRAY,
    {"type": "map", "keyType": "string", "valueType": ARRAY, "valueContainsNull": True},
    {
        "type": "struct",
        "fields": [
            {"name": "a b", "type": ARRAY, "nullable": False, "metadata": {"comment": "one"}},
            {"name": "c", "type": "string", "nullable": True, "metadata": {"__COLLATIONS": {"c": "spark.UTF8_BINARY"}}},
        ],
    },
)


@pytest.mark.parametrize("kind", [*ATOMIC, *NESTED], ids=str)
def test_types_are_those_that_spark_reads(kind: str | dict[str, Any]) -> None:
    text = spark_schema({"id": "long", "value": kind})
    assert struct_type(text) == StructType.fromJson(json.loads(text))
    assert struct_type(text).json() == StructType.fromJson(json.loads(text)).json()


@pytest.fixture
def planted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """Return the name of an importable module."""
    (tmp_path / "planted_type.py").write_text("class Hit: ...\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    return "planted_type"


@pytest.mark.parametrize("wrap", ["{}", '{{"type":"array","elementType":{},"containsNull":true}}'])
def test_a_type_of_a_module_is_refused_and_not_imported(planted: str, wrap: str) -> None:
    udt = {"type": "udt", "class": "x", "pyClass": f"{planted}.Hit", "serializedClass": "Y29zCg==", "sqlType": "long"}
    text = spark_schema({"id": json.loads(wrap.format(json.dumps(udt)))})
    with pytest.raises(CorruptData, match=rf"user-defined type {planted}\.Hit cannot be stored"):
        struct_type(text)
    assert planted not in sys.modules


@pytest.mark.parametrize(
    "kind", [7, None, ["long"], {"type": "class"}, "interval", "struct", {"type": ["array"]}], ids=str
)
def test_other_types_are_refused(kind: object) -> None:
    with pytest.raises(CorruptData, match="a schema of types that ftfile stores"):
        struct_type(spark_schema({"id": kind}))


@pytest.mark.parametrize("text", ["", "7", "{}", '{"fields":[7]}', '{"fields":[{}]}', "[" * 10_000], ids=repr)
def test_what_is_no_schema_is_refused(text: str) -> None:
    with pytest.raises(CorruptData, match="a schema of types that ftfile stores"):
        struct_type(text)
