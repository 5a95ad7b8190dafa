"""Settings of a store: from options to checked values."""

from __future__ import annotations

import pickle
import re
from typing import Any

import msgspec
import pyarrow as pa
import pytest

from ftfile.core.errors import ConfigError
from ftfile.kv.config import StoreConfig
from ftfile.kv.definition import StoreDefinition
from ftfile.kv.planning.picker import DEFAULT_PLAN, PlanSettings
from ftfile.log.format.model import Transaction
from ftfile.rows.spark_types import spark_schema_json

COLUMNS = [("word", pa.string()), ("n", pa.int32()), ("gone", pa.bool_()), ("at", pa.timestamp("us", tz="UTC"))]
SCHEMA = spark_schema_json(pa.schema(COLUMNS))
GIVEN = {"path": "/store", "keyColumns": "word"}


def config(**options: str) -> StoreConfig:
    return StoreConfig.from_options(GIVEN | options, SCHEMA)


def test_the_defaults() -> None:
    found = config()
    assert found.definition.keys == ("word",)
    assert found.definition.values == ["n", "gone", "at"]
    assert (found.definition.buckets, found.definition.bucket_by, found.definition.merge) == (16, ("word",), {})
    assert found.plan == DEFAULT_PLAN
    assert (found.compression, found.grace_s, found.vacuum_interval_s) == ("lz4", 7200, 3600)
    assert found.common.encryption is None
    assert pickle.loads(pickle.dumps(found)) == found


def test_options_as_other_sinks_have_them() -> None:
    assert config(compression="uncompressed").compression == "none"
    with pytest.raises(ConfigError, match=r"there is no option 'mergeSchema': .*onSchemaChange=widen"):
        config(mergeSchema="true")
    with pytest.raises(ConfigError, match=r"there is no option 'outputMode': .*writeStream\.outputMode"):
        config(outputMode="update")
    with pytest.raises(ConfigError, match=r"there is no option 'dataChange': .*ftfile\.kv\.compact\(path\)"):
        config(dataChange="false")
    with pytest.raises(ConfigError, match=r"there is no option 'clusterBy': .*keyColumns"):
        config(clusterBy="word")


def test_each_option_has_its_place() -> None:
    found = config(
        keyColumns="WORD,At", bucketBy="word", buckets="4", merge="n:sum", deleteColumn="GONE", compression="none",
        maxFileSize="1MiB", flushSize="7", flushBytes="2KiB", flushIntervalCount="3",
        tombstoneTtl="1d", grace="5min", vacuumInterval="0s", maxOpenBytes="9KiB",
        badRecords="drop", maxRecordBytes="1KiB", onSchemaChange="widen", onGap="accept",
        durability="close", txnAppId="app", txnVersion="3",
    )  # fmt: skip
    assert found.definition.to_json() | {"schema": ""} == {
        "keys": ["word", "at"], "schema": "", "bucketBy": ["word"], "buckets": 4, "merge": {"n": "sum"},
        "sequenceColumn": None,
    }  # fmt: skip
    assert found.delete_column == "gone"
    assert found.schema.names == ["word", "n", "gone", "at"]
    assert found.definition.schema.names == ["word", "at", "n"]
    assert found.plan == PlanSettings(3, 2048, 7, 4, 1 << 20, 86_400_000)
    assert (found.compression, found.grace_s, found.vacuum_interval_s) == ("none", 300, 0)
    common = found.common
    assert (common.max_open_bytes, common.bad_records, common.max_record_bytes) == (9216, "drop", 1024)
    assert (common.on_schema_change, common.storage.durability) == ("widen", "close")
    assert common.policy.on_gap == "accept"
    assert common.transaction == Transaction("app", 3)


def test_the_log_has_what_maintenance_needs() -> None:
    found = config(flushSize="7", compression="zstd", filePermission="640")
    settings = found.settings()
    assert msgspec.convert(settings["store"]["plan"], PlanSettings) == found.plan
    assert settings["storage"] == {"filePermission": "640"}
    assert StoreDefinition.from_json(found.definition.to_json()) == found.definition


def test_the_size_of_records_has_a_limit() -> None:
    assert config().common.max_record_bytes == 64 << 20


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"path": None}, "the option `path` is missing"),
        ({"keyColumns": None}, "keyColumns is not given: name the columns of the key, from word, n, gone, at"),
        (
            {"keyColumns": "words"},
            "keyColumns names a column that does not exist: 'words'; the columns are word, n, gone, at",
        ),
        ({"bucketBy": "n"}, "bucketBy=n: it can only name key columns, which are word"),
        ({"buckets": "12"}, "buckets=12: it must be a power of two"),
        ({"merge": "m:sum"}, "'m' is not one of the value columns"),
        ({"merge": "word:sum"}, "'word' is not one of the value columns"),
        ({"deleteColumn": "n"}, "deleteColumn: column 'n' is int32, but a boolean column is needed"),
        ({"deleteColumn": "gone", "keyColumns": "gone"}, "deleteColumn=gone: it is also a key column"),
        ({"deleteColumn": "gone", "sequenceColumn": "gone"}, "sequenceColumn names a column that does not exist"),
        ({"sequenceColumn": "at", "merge": "n:sum"}, "sequenceColumn='at' with merge=n:sum"),
        ({"encryption": "parquet", "keyProvider": "env:KEYS_OF_TEST"}, "set encryption=aes-gcm"),
        ({"onSchemaChange": "any"}, "set onSchemaChange=widen"),
        ({"txnAppId": "app"}, "txnAppId without txnVersion"),
        ({"partitionBy": "word"}, "not for writing keyed stores (`ftkv`); use bucketBy"),
        ({"cacheBytes": "1m"}, "is for reading keyed stores (`ftkv`), not for writing keyed stores (`ftkv`)"),
        ({"keyColum": "word"}, "did you mean keyColumns"),
        ({"compression": "gzip"}, "it takes one of `none`, `lz4`, `zstd`"),
    ],
)
def test_mistakes_say_what_to_write_instead(
    options: dict[str, Any], text: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("KEYS_OF_TEST", f"k {'A' * 43}=")
    given = {name: value for name, value in (GIVEN | options).items() if value is not None}
    with pytest.raises(ConfigError, match=re.escape(text)):
        StoreConfig.from_options(given, SCHEMA)


def test_a_stream_needs_no_transaction() -> None:
    with pytest.raises(ConfigError, match="already make each batch exactly once"):
        StoreConfig.from_options(GIVEN | {"txnAppId": "app", "txnVersion": "3"}, SCHEMA, stream=True)
