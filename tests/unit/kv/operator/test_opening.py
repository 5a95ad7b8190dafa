"""Opening an operator's store again: what is left out is as the store has it, what differs is refused."""

from __future__ import annotations

from datetime import date
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import pytest

from ftfile import kv
from ftfile.core.errors import ConfigError, SchemaError
from ftfile.testing.fs.crashing import CrashingFileSystem
from tests.unit.kv.operator.stores import open_store
from tests.unit.kv.stores import counting, rows

if TYPE_CHECKING:
    from pathlib import Path

SHAPE: dict[str, Any] = {
    "keys": {"city": "string", "day": "date"},
    "values": {"total": "decimal(10,2)", "name": "string"},
    "buckets": 4,
    "bucket_by": ["city"],
    "merge": "total:sum",
}

KEY = ("Rome", date(2024, 7, 1))


@pytest.fixture
def fs() -> CrashingFileSystem:
    return CrashingFileSystem()


def test_what_is_left_out_is_as_the_store_has_it(fs: CrashingFileSystem) -> None:
    with open_store(fs, **SHAPE) as store:
        definition = store.definition
    for number in range(3):
        with open_store(fs) as store:
            assert store.definition == definition
            store.merge(KEY, (Decimal("1.25"), str(number)))
            store.commit()
            assert store.get(KEY) == (Decimal("1.25") * (number + 1), str(number))
    with open_store(fs, **SHAPE) as store:
        assert store.definition == definition


@pytest.mark.parametrize(
    ("changed", "told"),
    [
        ({"buckets": 8}, "buckets: the store has 4, and 8 is given"),
        ({"merge": "total:max"}, "merge: the store has total:sum, and total:max is given"),
        ({"bucket_by": ["day"]}, r"bucketBy: the store has \['city'\], and \['day'\] is given"),
        ({"keys": {"city": "string"}}, r"keyColumns: the store has \['city', 'day'\], and \['city'\] is given"),
        ({"keys": {"city": "string", "day": "timestamp"}}, "types of the key columns: the store has"),
        (
            {"values": {"name": "string", "total": "decimal(10,2)"}},
            r"\['total', 'name'\], and \['name', 'total'\]",
        ),
        ({"values": {"total": "decimal(10,2)", "name": "long"}}, "name was string and is int64"),
        ({"codec": kv.Pairs(kv.Text(), kv.Text())}, "one binary key column"),
    ],
)
def test_what_differs_is_refused(fs: CrashingFileSystem, changed: dict[str, Any], told: str) -> None:
    with open_store(fs, **SHAPE) as store:
        version = store.version
    with pytest.raises((ConfigError, SchemaError), match=told):
        open_store(fs, **changed)
    with open_store(fs) as store:
        assert store.version == version + 1, "what was refused is not recorded"


def test_a_store_that_spark_made(tmp_path: Path) -> None:
    out = str(tmp_path / "out")
    query = counting(out)
    query.run(0, [rows("a", "b")])
    with kv.KeyValueStore(out, writer="w", maintenance="none") as store:
        store.merge("a", 5)
        store.commit()
        assert store.multi_get(["a", "b"]) == [6, 1]
    query.run(1, [rows("a")])
    with kv.open(out) as reader:
        assert reader.get("a") == 7
