"""One range made of all records, on request."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ftfile.commit.opening import open_as_written
from ftfile.commit.read.ranges import merge_all
from ftfile.core.context import SYSTEM

if TYPE_CHECKING:
    import os
    from collections.abc import Mapping

    from ftfile.core.context import Context


def merge_ranges(
    path: str | os.PathLike[str],
    *,
    key_provider: str | None = None,
    storage: Mapping[str, str] | None = None,
    context: Context = SYSTEM,
) -> int:
    """Make one range of all records, so that readers open one file; return the version up to which it stands for them.

    Ranges that are missing or damaged are made anew. Safe beside running queries, and repeatable. Commits merge small
    ranges themselves. For the arguments see `ftfile.open`.

    Raises:
        ConfigError: the path is no ftfile directory.
        CorruptData: a range is damaged, and the records that it stood for are not kept.
    """
    log = open_as_written(path, key_provider, storage, context)
    head = log.read_on(durable=True)
    merge_all(log, head)
    return head.version
