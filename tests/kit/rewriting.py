"""Rewrites the files of a directory without some of their rows, as a maintenance operation records it."""

from __future__ import annotations

import io
from typing import TYPE_CHECKING

import pyarrow.parquet as pq
from msgspec import structs

from ftfile.core.checksum import checksum
from ftfile.log.commit_log import CommitLog
from ftfile.log.format import layout
from ftfile.log.format.model import Body, MaintenanceAuthor, Remove
from ftfile.log.protocol import commit
from ftfile.log.read.snapshot import take_snapshot
from ftfile.testing.context import open_filesystem

if TYPE_CHECKING:
    import pyarrow.compute as pc

__all__ = ("rewrite_without",)


def rewrite_without(url: str, condition: pc.Expression) -> None:
    """Replace each Parquet file by a file without the matching rows, in one record with as many adds as removes."""
    fs = open_filesystem(url)
    log = CommitLog(fs)
    live = tuple(take_snapshot(log).adds.values())
    stage = layout.staged_directory("0" * 32)
    fs.make_directories(stage)
    adds = []
    for number, add in enumerate(live):
        table = pq.read_table(io.BytesIO(fs.read(add.final_path or ""))).filter(~condition)
        sink = io.BytesIO()
        pq.write_table(table, sink)
        content, path = sink.getvalue(), f"{stage}/{number}.staged"
        fs.create_exclusive(path, content)
        adds.append(
            structs.replace(
                add,
                id=f"rewritten-{number}",
                path=path,
                final_path=f"rewritten-{number}.parquet",
                length=len(content),
                logical_length=len(content),
                checksum=checksum(content),
                rows=len(table),
            )
        )
    rows_removed = sum(add.rows for add in live) - sum(add.rows for add in adds)
    body = Body(adds=tuple(adds), removes=tuple(map(Remove.of, live)), rows_removed=rows_removed)
    commit(log, MaintenanceAuthor("rewrite", "0" * 32), lambda *_: body)
