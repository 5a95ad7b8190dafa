"""What to do in the cases that the user decides."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

__all__ = ("Policy",)


@dataclass(frozen=True, slots=True)
class Policy:
    """The protocol's options; the defaults never go on silently where rows could be lost or doubled.

    Attributes:
        on_new_query: a query that a log with other queries has never seen.
        on_gap: a first batch other than 0, or a batch that does not follow the last.
        on_replay_mismatch: a batch that is in the log with other content; `keep` keeps what is there.
        on_missing_part: a published part that is no longer there.
        publish_timeout_s: how long publishing is tried again before the batch fails.
    """

    on_new_query: Literal["fail", "continue"] = "fail"
    on_gap: Literal["fail", "accept"] = "fail"
    on_replay_mismatch: Literal["fail", "keep"] = "fail"
    on_missing_part: Literal["warn", "fail"] = "warn"
    publish_timeout_s: float = 60.0
