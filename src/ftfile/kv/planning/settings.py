"""When runs are merged, and how large they get."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping

_MIB = 1 << 20
_DAY_MS = 86_400_000
_NAMES = {  # in the log
    "flush_runs": "flushRuns",
    "flush_bytes": "flushBytes",
    "flush_rows": "flushRows",
    "fan_in": "fanIn",
    "job_bytes": "jobBytes",
    "max_file_bytes": "maxBytesPerFile",
    "tombstone_ttl_ms": "tombstoneTtlMs",
}


@dataclass(frozen=True, slots=True)
class PlanSettings:
    """The rules by which runs of a bucket are merged."""

    flush_runs: int = 16  # new runs are merged when there are as many,
    flush_bytes: int = 2 * _MIB  # or they have as many bytes,
    flush_rows: int = 1_000_000  # or rows
    fan_in: int = 4  # runs of similar size that are merged to one
    job_bytes: int = 256 * _MIB  # a job that has more bytes to read is cut by keys
    max_file_bytes: int = 128 * _MIB  # of a run that a job writes
    # With a sequence column, how long a deleted row stays deleted when older rows come late.
    tombstone_ttl_ms: int = 7 * _DAY_MS

    @property
    def relabel_bytes(self) -> int:
        """Return the size from which on a run is kept as it is where no other row is in its way."""
        return self.max_file_bytes // 4

    def to_json(self) -> dict[str, Any]:
        """Return plain JSON for the log."""
        return {name: getattr(self, attribute) for attribute, name in _NAMES.items()}

    @classmethod
    def from_json(cls, text: Mapping[str, Any]) -> PlanSettings:
        """Build from `to_json()`."""
        return cls(**{attribute: text[name] for attribute, name in _NAMES.items()})
