"""Forges fields of a directory's records with right checksums, as an attacker with write access can; and Arrow rows."""

from __future__ import annotations

import contextlib
import json
import shutil
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from ftfile.log.format.record import compact_json, from_checked_text, to_checked_text

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    Steps = tuple[str | int, ...]

# Matches every key; used for the keys of definitions, which are hashes.
ANY = "*"


def forge(directory: Path, steps: Sequence[str | int], value: object) -> int:
    """Set a field in the header of each record that has it; return their number. Delete files derived from records.

    A step is a key, a place in a list, or `ANY`. A step into a text enters the JSON in the text.
    """
    count = 0
    for path in sorted((directory / "_ftfile/log").glob("*.record")):
        header_text, *rest = from_checked_text(path.read_bytes(), path.name)
        header = json.loads(header_text)
        hits = _set(header, steps, value)
        count += hits
        if hits:
            path.write_bytes(to_checked_text([compact_json(header), *rest]))
    for derived in ("hints", "checkpoints", "compacted"):
        shutil.rmtree(directory / "_ftfile" / derived, ignore_errors=True)
    return count


@contextlib.contextmanager
def forged_header(directory: Path) -> Iterator[dict[str, Any]]:
    """Yield the header of the newest record, which the block may change."""
    path = sorted((directory / "_ftfile/log").glob("*.record"))[-1]
    header_text, *rest = from_checked_text(path.read_bytes(), path.name)
    header = json.loads(header_text)
    yield header
    path.write_bytes(to_checked_text([compact_json(header), *rest]))


def _set(tree: Any, steps: Sequence[str | int], value: object) -> int:
    first, *rest = steps
    keys = [*tree] if first == ANY else [first]
    return sum(_set_at(tree, key, rest, value) for key in keys if _has(tree, key))


def _set_at(tree: Any, key: Any, rest: Sequence[str | int], value: object) -> int:
    if not rest:
        tree[key] = value
        return 1
    branch = tree[key]
    if not isinstance(branch, str):
        return _set(branch, rest, value)
    try:
        inner = json.loads(branch)
    except ValueError:
        return 0
    hits = _set(inner, rest, value)
    tree[key] = json.dumps(inner)
    return hits


def _has(tree: Any, key: Any) -> bool:
    if isinstance(tree, dict):
        return key in tree
    return isinstance(tree, list) and isinstance(key, int) and key < len(tree)


def fields_of(tree: object, before: Steps = ()) -> Iterator[Steps]:
    """Yield the steps to each leaf value in JSON."""
    items = tree.items() if isinstance(tree, dict) else enumerate(tree) if isinstance(tree, list) else ()
    if not items:
        yield before
    for key, value in items:
        yield from fields_of(value, (*before, key))


def stream_of(rows: pa.RecordBatch, **options: Any) -> bytes:
    """Return a stream of rows in Arrow's format, written with these options."""
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, rows.schema, options=pa.ipc.IpcWriteOptions(**options)) as writer:
        writer.write_batch(rows)
    return bytes(sink.getvalue())


def message_of(rows: pa.RecordBatch, **options: Any) -> bytes:
    """Return a message of rows in Arrow's format, written with these options."""
    *_, message = pa.MessageReader.open_stream(pa.py_buffer(stream_of(rows, **options)))
    return bytes(message.serialize())
