"""The options of a follower: where it begins, and how much a plan may read."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from ftfile.core.errors import ConfigError

if TYPE_CHECKING:
    from datetime import datetime

    from ftfile.core.options import ParsedOptions


@dataclass(frozen=True, slots=True)
class Limits:
    """The most that a plan reads; None is no limit."""

    files: int | None = None
    size_bytes: int | None = None
    rows: int | None = None


@dataclass(frozen=True, slots=True)
class FollowSettings:
    """The options of a follower."""

    starting_version: int | Literal["latest"] | None = None
    starting_time: datetime | None = None
    limits: Limits = Limits()
    skip_changes: bool = False

    @property
    def has_limits(self) -> bool:
        """Return True if a plan may leave something to the next one."""
        return self.limits != Limits()

    def __post_init__(self) -> None:
        if self.starting_version is not None and self.starting_time is not None:
            raise ConfigError("startingVersion and startingTimestamp both say where to begin: set one of them")

    @classmethod
    def from_options(cls, parsed: ParsedOptions) -> FollowSettings:
        """Return the settings that the options name; a ConfigError where they contradict each other."""
        limits = Limits(parsed["maxFilesPerTrigger"], parsed["maxBytesPerTrigger"], parsed["maxRowsPerTrigger"])
        return cls(parsed["startingVersion"], parsed["startingTimestamp"], limits, parsed["skipChangeCommits"])
