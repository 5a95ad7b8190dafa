"""What a forged directory makes Spark's processes do: nothing."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import ftfile.spark
from ftfile.errors import CorruptData
from ftfile.testing.micro_batch import MicroBatch
from tests.hostile.forging import ANY, forge

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

MODULE = "planted_for_spark"


@pytest.fixture
def mark(tmp_path: Path) -> Path:
    """Return a file that the planted module would make in any process of Spark that imported it."""
    folder = Path(os.environ["PYTHONPATH"].split(os.pathsep)[0])  # on the path of driver and workers
    assert folder.is_dir()
    (folder / f"{MODULE}.py").write_text(f"open({str(tmp_path / 'mark')!r}, 'w').close()\n\nclass Hit: ...\n")
    return tmp_path / "mark"


def test_a_type_that_names_a_module_is_refused_and_not_imported(
    spark: SparkSession, tmp_path: Path, mark: Path
) -> None:
    path = tmp_path / "out"
    MicroBatch(str(path), {"id": "long"}).run(0, [[{"id": 1}]])
    udt = {"type": "udt", "class": "x", "pyClass": f"{MODULE}.Hit", "serializedClass": "Y29zCg==", "sqlType": "long"}
    assert forge(path, ("definitions", ANY, "fields", 0, "type"), udt) == 1
    with pytest.raises(Exception, match=rf"user-defined type {MODULE}\.Hit cannot be stored"):
        spark.read.format("ftfile").load(str(path))
    with pytest.raises(Exception, match=rf"user-defined type {MODULE}\.Hit cannot be stored"):
        spark.readStream.format("ftfile").load(str(path))
    with pytest.raises(CorruptData, match=rf"user-defined type {MODULE}\.Hit cannot be stored"):
        ftfile.spark.load(spark, str(path))
    assert not mark.exists()
