from __future__ import annotations

import json
from typing import Any

import pyarrow as pa
import pytest

from ftfile.core.errors import ConfigError
from ftfile.kv.definition import StoreDefinition, define, require_same

SCHEMA = pa.schema(
    [
        ("n", pa.int32()),
        ("user", pa.string()),
        ("price", pa.decimal128(10, 2)),
        ("day", pa.date32()),
        ("tags", pa.list_(pa.field("element", pa.string()))),
        ("x", pa.float32()),
    ]
)
KEYS = ["user", "day"]


def test_keys_come_first_and_sums_are_as_wide_as_those_of_spark() -> None:
    made = define(SCHEMA, KEYS, merge="n:sum, price:sum,tags:append,x:sum", bucket_by=["user"], buckets=4)
    assert made.schema.names == ["user", "day", "n", "price", "tags", "x"]
    assert made.values == ["n", "price", "tags", "x"]
    kinds = [made.schema.field(name).type for name in made.values]
    assert kinds == [pa.int64(), pa.decimal128(20, 2), SCHEMA.field("tags").type, pa.float64()]
    assert StoreDefinition.from_json(json.loads(json.dumps(made.to_json()))) == made


def test_a_function_for_all_columns() -> None:
    assert define(SCHEMA, KEYS, merge="coalesce").merge == dict.fromkeys(["n", "price", "tags", "x"], "coalesce")
    assert define(SCHEMA, KEYS).merge == define(SCHEMA, KEYS, merge="n:last").merge == {}
    name = "tests.unit.kv.user_merges:Longest"
    assert define(SCHEMA, KEYS, merge=f"tags:{name}").merge == {"tags": name}
    assert define(SCHEMA, KEYS, merge=name).merge["x"] == name


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ({"keys": []}, "keyColumns"),
        ({"keys": ["who"]}, "'who' must be one of"),
        ({"keys": ["user", "user"]}, "once"),
        ({"keys": ["x"]}, "type float"),
        ({"bucket_by": ["n"]}, "bucketBy=n"),
        ({"buckets": 3}, "buckets=3"),
        ({"buckets": 0}, "buckets=0"),
        ({"buckets": 1 << 17}, "buckets=131072"),
        ({"merge": "who:sum"}, "'who' is not one"),
        ({"merge": "user:sum"}, "'user' is not one"),
        ({"merge": "total"}, "use one of append, coalesce"),
        ({"merge": "n:sum,max"}, "has no column"),
        ({"merge": "tags:sum"}, "sum does not support"),
        ({"merge": "tags:min"}, "min does not support"),
        ({"merge": "n:append"}, "append does not support"),
        ({"merge": "no_such_module:Class"}, "no_such_module"),
        ({"merge": "tests.unit.kv.user_merges:NoMethod"}, "combine"),
        ({"sequence": "when"}, "sequenceColumn='when' is not one"),
        ({"sequence": "tags"}, "cannot be ordered"),
        ({"sequence": "n", "merge": "x:sum"}, "sequenceColumn='n' with merge=x:sum"),
    ],
)
def test_options_that_make_no_store(options: dict[str, Any], told: str) -> None:
    with pytest.raises(ConfigError, match=told):
        define(SCHEMA, **{"keys": KEYS, **options})


@pytest.mark.parametrize("name", ["_op", "_deletedMs", "n"])
def test_names_that_are_taken(name: str) -> None:
    with pytest.raises(ConfigError, match=name):
        define(SCHEMA.append(pa.field(name, pa.string())), KEYS)


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ({"keys": ["day", "user"]}, r"keyColumns: the store has .*\. Give \w+,\w+, or"),
        ({"bucket_by": ["day"]}, "bucketBy"),
        ({"buckets": 2}, r"buckets: the store has 16, and 2 is given\. Give 16, or write to a new path"),
        ({"merge": "n:max"}, "n:sum, and n:max"),
        ({"merge": "last", "sequence": "n"}, "merge"),
    ],
)
def test_options_that_differ_from_the_store(options: dict[str, Any], told: str) -> None:
    recorded = define(SCHEMA, KEYS, merge="n:sum")
    with pytest.raises(ConfigError, match=told):
        require_same(recorded, define(SCHEMA, **{"keys": KEYS, "merge": "n:sum", **options}))
    more = SCHEMA.append(pa.field("more", pa.string()))
    for merge in ("n:sum", "n:sum,more:append"):
        require_same(recorded, define(more, KEYS, merge=merge))
