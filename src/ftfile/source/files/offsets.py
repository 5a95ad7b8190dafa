"""Positions of a source of files: the plan up to which it was read, as plain JSON of at most 256 bytes."""

from __future__ import annotations

import re
from typing import Any, NamedTuple

from ftfile.core.errors import ConfigError

# Where every query begins. Spark asks for it anew when it repeats the first batch, so that it is a constant.
START: dict[str, Any] = {"kind": "start"}
_ID = re.compile(r"[0-9a-f]{32}")


class PlanPosition(NamedTuple):
    """The position behind a plan."""

    log_id: str  # of the plan log, which is the name of its directory
    plan: int  # -1 before the first plan
    nonce: str  # of the plan's record; empty before the first


def to_offset(position: PlanPosition | None) -> dict[str, Any]:
    """Return a position, None for the start, as Spark's checkpoints keep it."""
    if position is None:
        return dict(START)
    return {"kind": "plans", "id": position.log_id, "plan": position.plan, "nonce": position.nonce}


def position_of(offset: Any) -> PlanPosition | None:  # noqa: ANN401 - whatever a checkpoint holds
    """Return the position that an offset stands for; None for the start.

    Raises:
        ConfigError: it is none of a source of files.
    """
    if offset == START:
        return None
    try:
        position = PlanPosition(offset["id"], offset["plan"], offset["nonce"])
        types = [*map(type, position)]
    except (KeyError, TypeError):
        types = []
    is_whole = types == [str, int, str] and to_offset(position) == offset and position.plan >= 0
    if is_whole and _ID.fullmatch(position.log_id):  # it becomes a name in a path
        return position
    raise ConfigError(
        f"the offset {str(offset)[:300]} is none of a source of files: the checkpoint is that of another source. Give "
        "the query a new checkpointLocation"
    )
