"""What Spark's worker processes are spared."""

from __future__ import annotations

import gc
import itertools
import sys
from types import ModuleType
from typing import TYPE_CHECKING

import pytest
from pyspark.sql.types import LongType, StructType

from ftfile.spark import worker
from ftfile.spark.datasource import FtFileDataSource
from ftfile.testing.micro_batch import MicroBatch

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

_modules = (f"made_{number}" for number in itertools.count())


def write(directory: Path) -> None:
    source = FtFileDataSource({"path": str(directory), "fileFormat": "parquet"})
    source.streamWriter(StructType().add("n", LongType()), overwrite=False)


def read(directory: Path) -> None:
    source = FtFileDataSource({"path": str(directory)})
    reader = source.reader(source.schema())
    (partition,) = reader.partitions()
    assert len([*reader.read(partition)]) == 1


@pytest.mark.parametrize("use", [write, read])
@pytest.mark.parametrize(("in_worker", "frozen_after"), [(True, [0, 1, 1, 2]), (False, [0, 0, 0, 0])])
def test_what_a_use_of_a_worker_has_imported_is_frozen_at_the_next(
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    use: Callable[[Path], None],
    in_worker: bool,
    frozen_after: list[int],
) -> None:
    MicroBatch(str(tmp_path), {"n": "long"}).run(0, [[{"n": 1}]])
    use(tmp_path)  # imports what it needs
    frozen: list[None] = []
    monkeypatch.setattr(gc, "freeze", lambda: frozen.append(None))
    monkeypatch.setattr(worker, "_frozen", [])
    monkeypatch.setattr(worker, "is_worker", lambda: in_worker)
    found = []
    for number in range(len(frozen_after)):
        use(tmp_path)
        found.append(len(frozen))
        if number == 2:
            monkeypatch.setitem(sys.modules, next(_modules), ModuleType("made"))
    assert found == frozen_after
