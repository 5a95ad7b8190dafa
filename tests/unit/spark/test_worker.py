"""What Spark's worker processes are spared."""

from __future__ import annotations

import gc
import itertools
from typing import TYPE_CHECKING

import pytest
from pyspark.sql.types import LongType, StructType

from ftfile.spark import worker
from ftfile.spark.datasource import FtFileDataSource

if TYPE_CHECKING:
    from pathlib import Path


@pytest.mark.parametrize(("in_worker", "frozen_after"), [(True, [0, 1, 1]), (False, [0, 0, 0])])
def test_modules_are_frozen_when_a_worker_is_used_again(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, in_worker: bool, frozen_after: list[int]
) -> None:
    frozen: list[None] = []
    monkeypatch.setattr(gc, "freeze", lambda: frozen.append(None))
    monkeypatch.setattr(worker, "_uses", itertools.count(1))
    monkeypatch.setattr(worker, "is_worker", lambda: in_worker)
    found = []
    for _ in frozen_after:
        source = FtFileDataSource({"path": str(tmp_path), "fileFormat": "json"})
        source.streamWriter(StructType().add("n", LongType()), overwrite=False)
        found.append(len(frozen))
    assert found == frozen_after
