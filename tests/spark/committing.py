"""A function for `onPublish`: it runs in the committing process and records whether that process planned the batch."""

from __future__ import annotations

import inspect
import json
import os
from pathlib import Path
from typing import TYPE_CHECKING

from ftfile.spark.writers import StreamWriter

if TYPE_CHECKING:
    from ftfile.writing.files.publishing import PublishedPart


def note_plan(parts: tuple[PublishedPart, ...]) -> None:
    """Append the batch, the process, and whether its writer has a plan, to a file next to the directory of the sink."""
    frames = inspect.stack()
    writer = next(found for info in frames if isinstance(found := info.frame.f_locals.get("self"), StreamWriter))
    out = Path(parts[0].url.removeprefix("file://").removesuffix(parts[0].path))
    with (out.parent / "commits").open("a") as notes:
        notes.write(json.dumps([parts[0].batch_id, os.getpid(), writer._plan is not None]) + "\n")


def noted(directory: Path) -> list[tuple[int, int, bool]]:
    """Return the batch, the process, and whether it had a plan, for each commit into `out` of a directory."""
    found: list[tuple[int, int, bool]] = [
        tuple(json.loads(line)) for line in (directory / "commits").read_text().splitlines()
    ]
    return found
