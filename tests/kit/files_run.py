"""Streams of other programs' files without a JVM: like `SourceRun`, with a state that survives the process."""

from __future__ import annotations

import copy
import pickle
from dataclasses import dataclass
from typing import Any

from ftfile.core.options.parsing import parse_options
from ftfile.core.options.typed import FilesOptions
from ftfile.rows.spark_types import arrow_schema
from ftfile.source.decode import rows_of_share
from ftfile.source.stream import SourceConfig, SourceStream
from ftfile.storage.registry import open_filesystem
from ftfile.testing.context import current
from ftfile.testing.micro_batch import spark_schema
from ftfile.testing.source_run import SourceRun

__all__ = ("FilesRun",)


@dataclass
class FilesRun(SourceRun):
    """A streaming query on files of other programs, its checkpoint, and the rows that an exactly-once sink received.

    For example::

        run = FilesRun("/data/in", {"value": "string"}, {"fileFormat": "text", "stateLocation": "/data/state"})
        run.run()

    Attributes:
        pause_s: seconds to wait before each listing for new files.
    """

    pause_s: float = 0

    def run_batch(self, *, once: bool = False) -> bool:
        """Run the next batch, as `SourceRun.run_batch`, after a pause."""
        if self.pause_s:
            current().clock.sleep(self.pause_s)
        return super().run_batch(once=once)

    def copied(self) -> FilesRun:
        """Return another query with a copy of the checkpoint and of the rows that the sink received."""
        found = copy.copy(self)
        found.offsets, found.batches, found.adds = [*self.offsets], dict(self.batches), dict(self.adds)
        found.restart()
        return found

    def config(self) -> SourceConfig:
        """Parse the options again and return the settings."""
        parsed = parse_options({"path": self.path} | dict(self.options), FilesOptions)
        return SourceConfig.from_options(parsed, spark_schema(self.columns))

    def _new_stream(self) -> SourceStream:
        return SourceStream(self.config(), current())

    def _commit(self, stream: SourceStream, end: dict[str, Any]) -> None:
        stream.commit(end)

    def _ids(self, share: Any) -> list[str]:
        return [f"{cut.range.path} {cut.start}-{cut.end} {cut.range.tail}" for cut in share.cuts]

    def _read(self, shipped: bytes) -> list[dict[str, Any]]:
        """Read a share in a separate process."""
        config, share = self.config(), pickle.loads(shipped)
        fs = open_filesystem(share.root, current(), config.storage)
        found: list[dict[str, Any]] = []
        for batch in rows_of_share(fs, share, arrow_schema(config.schema_json), config.settings.decoding):
            found += batch.to_pylist()
        return found
