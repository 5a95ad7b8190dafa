"""Arguments, options and names that an operator's store refuses, or warns of."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from ftfile.core.errors import ConfigError
from ftfile.testing.fs.crashing import CrashingFileSystem
from tests.unit.kv.operator.stores import open_store

if TYPE_CHECKING:
    from pathlib import Path

SHAPE: dict[str, Any] = {"keys": {"k": "string"}, "values": {"n": "long"}, "buckets": 4, "maintenance": "none"}
PAIR: dict[str, Any] = {"a": "long", "b": "long"}


@pytest.fixture
def fs() -> CrashingFileSystem:
    return CrashingFileSystem()


@pytest.fixture
def out(tmp_path: Path) -> str:
    return str(tmp_path / "out")


@pytest.mark.parametrize(
    ("option", "value", "told"),
    [
        ("path", "/elsewhere", "first argument"),
        ("keyColumns", "value", "argument keys="),
        ("bucketBy", "key", "argument bucket_by="),
        ("buckets", "4", "argument buckets="),
        ("MERGE", "sum", "argument merge="),
        ("deleteColumn", "value", r"call delete\(key\)"),
        ("sequenceColumn", "value", "write it by Spark"),
        ("tombstoneTtl", "1d", "for stores with a sequenceColumn"),
        ("badRecords", "drop", "for writes by Spark"),
        ("maxRecordBytes", "1m", "for writes by Spark"),
        ("maxOpenBytes", "1m", "for writes by Spark"),
        ("fingerprint", "strong", "for writes by Spark"),
        ("onNewQuery", "continue", "for writes by Spark"),
        ("onGap", "accept", "for writes by Spark"),
        ("onReplayMismatch", "keep", "for writes by Spark"),
        ("txnAppId", "app", "argument writer="),
        ("txnVersion", "1", "argument writer="),
    ],
)
def test_options_that_are_arguments_or_have_no_effect(
    fs: CrashingFileSystem, option: str, value: str, told: str
) -> None:
    with pytest.raises(ConfigError, match=f"option '{option}' of a KeyValueStore: .*{told}"):
        open_store(fs, options={option: value})
    assert fs.list("") == []
