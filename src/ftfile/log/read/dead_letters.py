"""Records that could not be written, as they were kept."""

from __future__ import annotations

import contextlib
import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ftfile.core.errors import CorruptData, NotFound
from ftfile.filters.aes_gcm import AesGcm
from ftfile.filters.chain import Chain
from ftfile.filters.decoded import decoded_piece
from ftfile.log.format import layout
from ftfile.log.places import list_own
from ftfile.log.sealed import identity_of_letters, keys_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from ftfile.log.commit_log import CommitLog
    from ftfile.log.state import LogState
    from ftfile.storage.api import FileSystem


_REMOVE = "Remove it"


@dataclass(frozen=True, slots=True)
class DeadLetter:
    """A record that could not be written."""

    reason: str  # names the column, and the value if there is one
    query_id: str  # the streaming query, or the id of the batch write
    batch_id: int  # the micro-batch; 0 for a batch write
    partition: int  # of the task
    row: dict[str, Any]  # the columns as plain JSON


def read_dead_letters(log: CommitLog) -> list[DeadLetter]:
    """Return all committed dead letters, oldest batch of each query first.

    Files in their directory were committed: only publishing puts them there. The head names those that it has still
    to publish. Users may delete a file that they have dealt with.

    In an encrypted directory they are authentic, each task's of a batch are there once, and no batch of a query is
    newer than the log knows. Once its record is gone, the log does not tell which attempt of a task was committed.

    Raises:
        CorruptData: a file does not hold dead letters as tasks write them.
    """
    places: dict[str, tuple[str, ...]] = {
        file.path: (file.path,) for owner in list_own(log.fs, layout.DEAD_LETTERS) for file in log.fs.list(owner.path)
    }
    head = log.refresh()
    for add in (add for entry in head.unpublished.values() for add in entry.adds):
        final = add.final_path or ""
        if final.startswith(f"{layout.DEAD_LETTERS}/"):
            places[final] = (final, add.path, final)
    is_sealed = keys_of(log.fs) is not None
    letters: list[DeadLetter] = []
    for path in sorted(places):
        decoded_letters = list(_letters(path, _plain(log.fs, path, _read(log.fs, places[path]))))
        for letter in decoded_letters if is_sealed else ():
            task = layout.DeadLetterTask(letter.query_id, letter.batch_id, letter.partition)
            if task != _task(path):
                raise CorruptData(path, f"dead letters of {_task(path)}", f"those of {task}", _REMOVE)
        letters += decoded_letters
    if is_sealed:
        _check_tasks(places, head)
    return letters


def _check_tasks(paths: Iterable[str], head: LogState) -> None:
    """Refuse a file that is authentic, and that no commit can have published."""
    seen: dict[layout.DeadLetterTask, str] = {}
    for path in sorted(paths):
        task = _task(path)
        first = seen.setdefault(task, path)
        if first != path:
            raise CorruptData(path, "a task's dead letters once", f"those of the same task as in {first!r}", _REMOVE)
        query = head.queries.get(task.owner)
        if query is not None and task.batch > query.last_batch:
            actual = f"batch {task.batch}, and the log has {query.last_batch} as the last one"
            raise CorruptData(path, "dead letters of a batch that was committed", actual, _REMOVE)


def _task(path: str) -> layout.DeadLetterTask:
    task = layout.dead_letter_task(path)
    if task is None:
        raise CorruptData(path, "dead letters with the name of their task", "another name", _REMOVE)
    return task


def _read(fs: FileSystem, places: Sequence[str]) -> bytes:
    """Return the content of a file that may move from one place to the next; nothing if somebody deleted it."""
    for place in places:
        with contextlib.suppress(NotFound):
            return fs.read(place)
    return b""


def _plain(fs: FileSystem, path: str, content: bytes) -> bytes:
    names, keys = layout.dead_letter_filters(path), keys_of(fs)
    if keys is not None and AesGcm.name not in names:
        # Their names are in no record: anybody could have put them there.
        raise CorruptData(path, "encrypted dead letters", "others, which were not written here", _REMOVE)
    if not names or not content:
        return content
    return decoded_piece(content, Chain.for_reading(names, keys), identity_of_letters(fs, path), path)


def _letters(path: str, content: bytes) -> Iterator[DeadLetter]:
    for line in content.splitlines():
        try:
            text = json.loads(line)
            yield DeadLetter(text["reason"], text["queryId"], text["batchId"], text["partition"], text["row"])
        except (ValueError, KeyError, TypeError, RecursionError) as error:
            raise CorruptData(path, "dead letters, one JSON object a line", f"{line[:80]!r}") from error
