"""Directories for reports."""

from __future__ import annotations

from pathlib import Path

import pytest

from ftfile.core.context import SYSTEM
from ftfile.log.checkpoints import write_checkpoint
from ftfile.log.commit_log import CommitLog
from ftfile.log.format import layout
from ftfile.testing.context import open_filesystem
from ftfile.testing.micro_batch import MicroBatch

COLUMNS = {"id": "long", "day": "string"}


@pytest.fixture
def rolled(tmp_path: Path) -> MicroBatch:
    """A query with a rolling policy, whose files stay open over its three batches."""
    options = {"fileFormat": "json", "partitionBy": "day", "rolling": "policy", "maxRecordsPerFile": "3"}
    query = MicroBatch(str(tmp_path / "out"), COLUMNS, options | {"rolloverInterval": "1h"})
    query.run(0, [[{"id": 1, "day": "<i>1"}, {"id": 2, "day": "<i>1"}, {"id": 3, "day": "2"}]])
    query.run(1, [[{"id": 4, "day": "<i>1"}, {"id": 5, "day": "2"}]])
    query.run(2, [[{"id": 6, "day": "2"}]])
    return query


@pytest.fixture
def damaged(rolled: MicroBatch) -> str:
    """The directory of the query with a damaged record before the newest checkpoint."""
    log = CommitLog(open_filesystem(rolled.path))
    write_checkpoint(log.fs, SYSTEM.ids, log.refresh())
    Path(rolled.path, layout.record_path(1)).write_bytes(b"")
    return rolled.path
