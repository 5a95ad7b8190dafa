"""Facts of a query from its Spark checkpoint: its id, and the offsets of a batch."""

from __future__ import annotations

import hashlib
import json
from typing import TYPE_CHECKING, Any, NamedTuple

from ftfile.core.errors import ConfigError, NotFound, StorageError
from ftfile.core.logs import get_logger
from ftfile.fs.registry import normalise, open_filesystem

if TYPE_CHECKING:
    from ftfile.core.context import Context

_log = get_logger(__name__)


class BatchOffsets(NamedTuple):
    """Spark's `offsets/N` file: a hash of all of it, and each source's offset."""

    hash: str
    offsets: list[Any]


def read_query_id(checkpoint: str | None, context: Context) -> str | None:
    """Return the id in the checkpoint's `metadata` file, or None if it is missing or cannot be read."""
    content = _read(checkpoint, "metadata", context)
    if content is None:
        return None
    try:
        return str(json.loads(content)["id"])
    except (ValueError, KeyError, TypeError):
        return None


def read_offsets(checkpoint: str | None, batch_id: int, context: Context) -> BatchOffsets | None:
    """Return the offsets of a batch, or None if the checkpoint is unknown or cannot be read here.

    The file is a version line, a line of batch metadata with its time, and one line per source; in version 2 the name
    of the source and a colon precede its offset. The hash covers the whole file: a file source's offset alone is equal
    for other data.
    """
    content = _read(checkpoint, f"offsets/{batch_id}", context)
    if content is None:
        return None
    lines = content.decode("utf-8", "replace").splitlines()
    texts = [line.partition(":")[2] if lines[0] == "v2" else line for line in lines[2:]]
    return BatchOffsets("sha256:" + hashlib.sha256(content).hexdigest(), [_as_json(text) for text in texts])


def _as_json(text: str) -> object:
    try:
        return json.loads(text)
    except ValueError:
        return text


def _read(checkpoint: str | None, name: str, context: Context) -> bytes | None:
    if checkpoint is None:
        return None
    try:
        return open_filesystem(normalise(checkpoint), context).read(name)
    except NotFound:
        return None
    except (StorageError, ConfigError) as error:
        _log.warning("cannot read %s of the checkpoint, replays are compared by content instead: %s", name, error)
        return None
