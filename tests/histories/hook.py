"""The calls of the user's function of `onPublish`."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ftfile.writing.files.publishing import PublishedPart


HEARD: set[str] = set()


def hear(parts: Sequence[PublishedPart]) -> None:
    """Record the paths of parts."""
    HEARD.update(part.path for part in parts)
