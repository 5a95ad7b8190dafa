"""A plan of a task that makes files of segments, as records have it."""

from __future__ import annotations

from typing import Any

FILES_PLAN: dict[str, Any] = {
    "maxBytesPerFile": None,
    "maxRecordsPerFile": 2,
    "strictFileSize": False,
    "keepTail": True,
    "taskCount": 1,
}
