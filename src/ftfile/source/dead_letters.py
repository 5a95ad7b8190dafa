"""Records that could not be written, as they were kept."""

from __future__ import annotations

import contextlib
import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ftfile.commit import layout
from ftfile.commit.sealed import keys_of
from ftfile.core.errors import CorruptData, NotFound
from ftfile.filters.aes_gcm import AesGcm
from ftfile.filters.chain import Chain
from ftfile.filters.decoded import decoded_piece

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from ftfile.commit.log import CommitLog
    from ftfile.fs.api import FileSystem
    from ftfile.keys.keys import Keys

__all__ = ("DeadLetter", "read_dead_letters")


@dataclass(frozen=True, slots=True)
class DeadLetter:
    """A record that could not be written.

    Attributes:
        reason: names the column, and the value if there is one.
        query_id: the streaming query, or the id of the batch write.
        batch_id: the micro-batch; 0 for a batch write.
        partition: the task's.
        row: its columns, as plain JSON has them.
    """

    reason: str
    query_id: str
    batch_id: int
    partition: int
    row: dict[str, Any]


def read_dead_letters(log: CommitLog) -> list[DeadLetter]:
    """Return all committed dead letters, oldest batch of each query first.

    What is in their directory was committed, since only publishing puts it there; what is committed and not there yet
    is what the head has to publish. Who has dealt with a file may delete it.

    Raises:
        CorruptData: a file does not hold what tasks write.
    """
    places: dict[str, tuple[str, ...]] = {path: (path,) for path in _published(log.fs)}
    for add in (add for entry in log.read_on().unpublished.values() for add in entry.adds):
        final = add.final_path or ""
        if final.startswith(f"{layout.DEAD_LETTERS}/"):
            places[final] = (final, add.path, final)
    keys = keys_of(log.fs)
    if keys is not None:
        _check_copies(places)
    contents = {path: _plain(path, _read(log.fs, places[path]), keys) for path in sorted(places)}
    return [letter for path, content in contents.items() for letter in _letters(path, content)]


def _check_copies(paths: Iterable[str]) -> None:
    """Refuse files that are authentic, and there twice: where they lie is in no record.

    Raises:
        CorruptData: names the second one.
    """
    seen: dict[str, str] = {}
    for path in sorted(paths):
        first = seen.setdefault(layout.storage_identity(path), path)
        if first != path:
            raise CorruptData(path, "a file of dead letters that is there once", f"a copy of {first!r}", "Remove it")


def _published(fs: FileSystem) -> Iterator[str]:
    try:
        owners = fs.list(layout.DEAD_LETTERS)
    except NotFound:
        return
    for owner in owners:
        yield from (file.path for file in fs.list(owner.path))


def _read(fs: FileSystem, places: Sequence[str]) -> bytes:
    """Return a file that may be on its way from one place to the next; nothing when somebody deleted it."""
    for place in places:
        with contextlib.suppress(NotFound):
            return fs.read(place)
    return b""


def _plain(path: str, content: bytes, keys: Keys | None) -> bytes:
    names = layout.dead_letter_filters(path)
    if keys is not None and AesGcm.name not in names:
        # Their names are in no record: anybody could have put them there.
        raise CorruptData(path, "encrypted dead letters", "others, which were not written here", "Remove it")
    if not names or not content:
        return content
    return decoded_piece(content, Chain.for_reading(names, keys), layout.storage_identity(path), path)


def _letters(path: str, content: bytes) -> Iterator[DeadLetter]:
    for line in content.splitlines():
        try:
            text = json.loads(line)
            yield DeadLetter(text["reason"], text["query"], text["batch"], text["partition"], text["row"])
        except (ValueError, KeyError, TypeError) as error:
            raise CorruptData(path, "dead letters, one JSON object a line", f"{line[:80]!r}") from error
