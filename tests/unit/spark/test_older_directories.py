"""`atLeastVersion` of Spark's readers, without a JVM: a restored older directory is refused before any task."""

from __future__ import annotations

import json
import shutil
from typing import TYPE_CHECKING

import pytest
from pyspark.sql.types import StructType

from ftfile.core.options.parsing import parse_options
from ftfile.core.options.typed import DirectoryFollowOptions
from ftfile.errors import ConfigError, RolledBack
from ftfile.spark import reader, store_reader
from ftfile.spark.native_load import load, load_plan
from ftfile.testing.micro_batch import MicroBatch, spark_schema
from tests.unit.kv.stores import COLUMNS, counting, rows

if TYPE_CHECKING:
    from pathlib import Path

WORDS = {"word": "string"}


def schema_of(columns: dict[str, str]) -> StructType:
    return StructType.fromJson(json.loads(spark_schema(columns)))


def test_readers_of_files(tmp_path: Path) -> None:
    path, copy = str(tmp_path / "out"), tmp_path / "copy"
    for batch in range(2):
        MicroBatch(path, WORDS).run(batch, [[{"word": "x"}]])
        if not batch:
            shutil.copytree(path, copy)
    opened = reader.make_reader({"path": path, "atLeastVersion": "1"}, schema_of(WORDS))
    assert len(opened.partitions()) == 1
    shutil.rmtree(path)
    shutil.copytree(copy, path)
    with pytest.raises(RolledBack, match="version 0 is the newest here"):
        opened.partitions()
    with pytest.raises(RolledBack):
        reader.make_reader({"path": path, "atLeastVersion": "1", "versionAsOf": "0"}, schema_of(WORDS))
    for call in (load, load_plan):
        with pytest.raises(RolledBack):
            call(None, path, at_least_version=1)  # type: ignore[arg-type] # nothing asks the session before
    assert reader.make_reader({"path": path, "atLeastVersion": "0"}, schema_of(WORDS)).partitions()


def test_readers_of_stores(tmp_path: Path) -> None:
    path = str(tmp_path / "store")
    counting(path).run(0, [rows("a")])
    with pytest.raises(RolledBack, match="at least version 7 is expected"):
        store_reader.make_reader({"path": path, "atLeastVersion": "7"}, schema_of(COLUMNS))
    assert store_reader.make_reader({"path": path, "atLeastVersion": "0"}, schema_of(COLUMNS)).partitions()


def test_a_stream_has_its_checkpoint() -> None:
    with pytest.raises(ConfigError, match="'atLeastVersion' is for"):
        parse_options({"atLeastVersion": "1"}, DirectoryFollowOptions)
