"""The rules by which runs of a store are compacted, and holds: runs that could not be."""

from __future__ import annotations

from typing import NamedTuple

import msgspec
from msgspec import Struct

from ftfile.core.options import ParsedOptions, parse_options
from ftfile.log.format.model import Count


class PlanSettings(Struct, frozen=True, rename="camel"):
    """The rules by which runs of a bucket are compacted; JSON in the log."""

    flush_runs: Count  # new runs are compacted when there are as many,
    flush_bytes: Count  # or they have as many bytes,
    flush_rows: Count  # or rows
    fan_in: Count  # runs of similar size that are merged to one
    max_file_bytes: Count = msgspec.field(name="maxBytesPerFile")  # of a run that a job writes
    # With a sequence column, how long a deleted row stays deleted when older rows come late.
    tombstone_ttl_ms: Count

    @classmethod
    def from_options(cls, parsed: ParsedOptions) -> PlanSettings:
        """Return the rules that a writer's options name."""
        return cls(
            flush_runs=parsed["flushIntervalCount"],
            flush_bytes=parsed["flushBytes"],
            flush_rows=parsed["flushSize"],
            fan_in=4,
            max_file_bytes=parsed["maxFileSize"],
            tombstone_ttl_ms=round(parsed["tombstoneTtl"] * 1000),
        )

    @property
    def read_bytes(self) -> int:
        """Return the bytes that a compaction reads, but for its two oldest sorted runs."""
        return 2 * self.max_file_bytes


DEFAULT_PLAN = PlanSettings.from_options(parse_options({}, "ftkv-write"))


class Hold(NamedTuple):
    """Neighbouring runs of a bucket that could not be compacted, such as a damaged one, or values without a sum.

    They are tried again with all newer runs of their level, or of their group, since one of these may have ended or
    replaced the rows that fail. Meanwhile other runs are compacted without them.
    """

    run: str  # id of the oldest; the hold ends with it
    last: int  # position of the newest row
    attempts: int = 1  # that failed
    not_before: int = 0  # version before which no task tries again
