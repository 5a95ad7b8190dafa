"""Definitions of stores, rules of merges and marks of runs of any types: CorruptData, or what can be used."""

from __future__ import annotations

import itertools
from typing import Any

import pyarrow as pa
import pytest

from ftfile.core.errors import CorruptData
from ftfile.kv.definition import StoreDefinition, define
from ftfile.kv.planning.jobs import PlanSettings
from ftfile.kv.planning.runs import Marks

SCHEMA = pa.schema([("key", pa.string()), ("day", pa.int32()), ("value", pa.int64())])
WRITTEN: dict[str, tuple[Any, dict[str, Any]]] = {
    "definition": (StoreDefinition, define(SCHEMA, ["key", "day"], merge="sum", buckets=4).to_json()),
    "rules": (PlanSettings, PlanSettings().to_json()),
    "marks": (Marks, Marks((1, 2), ((b"a", 1), (b"b", 2)), (((b"a",), None),)).to_json()),
}
VALUES: tuple[Any, ...] = (
    *(None, True, 0, -1, 1 << 70, 1.5, "", "key", "os:system", "../../x", [], [[]], [None], ["key", "key"], ["value"]),
    *([1], [[1.5], [{}]], [["a"], "b"], {}, {"key": "sum"}, {"value": 7}, {"value": {"a": 1}}),
)
FIELDS = [(kind, field) for kind, (_, text) in WRITTEN.items() for field in text]
# Values of the list that some field may have.
SOUND: dict[str, dict[str, list[Any]]] = {
    "definition": {"bucketBy": [{"key": "sum"}], "merge": [{}, [], ""], "sequenceColumn": [None]},
    "rules": {field: [0] for field in PlanSettings().to_json()},
    "marks": {"keys": [None], "purges": [[], "", {}], "ops": [0], "committedMs": [0]},
}


@pytest.mark.parametrize("kind", WRITTEN)
def test_what_was_written_is_read(kind: str) -> None:
    decoder, text = WRITTEN[kind]
    assert decoder.from_json(text).to_json() == text


@pytest.mark.parametrize(("kind", "field"), FIELDS)
def test_a_field_of_another_type_is_damage(kind: str, field: str) -> None:
    decoder, text = WRITTEN[kind]
    for value in VALUES:
        if value in SOUND[kind].get(field, []) and type(value) is not bool:
            decoder.from_json(text | {field: value})
            continue
        with pytest.raises(CorruptData):
            decoder.from_json(text | {field: value})


@pytest.mark.parametrize(("kind", "field"), FIELDS)
def test_a_field_that_is_missing_is_damage(kind: str, field: str) -> None:
    decoder, text = WRITTEN[kind]
    with pytest.raises(CorruptData):
        decoder.from_json({name: value for name, value in text.items() if name != field})


@pytest.mark.parametrize(("kind", "text"), [*itertools.product(WRITTEN, [[], None, "x"])])
def test_so_is_no_object(kind: str, text: object) -> None:
    with pytest.raises(CorruptData):
        WRITTEN[kind][0].from_json(text)
