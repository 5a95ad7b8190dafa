"""Dead letters: records that could not be written."""

from __future__ import annotations

import contextlib
import itertools
import json
from dataclasses import dataclass
from itertools import chain
from typing import TYPE_CHECKING, Any

from ftfile.core.errors import CorruptData, NotFound
from ftfile.filters.aes_gcm import AesGcm
from ftfile.filters.chain import Chain
from ftfile.filters.decoded import plain_pieces, stream_errors
from ftfile.log.format import layout
from ftfile.log.places import list_own
from ftfile.log.sealed import identity_of_letters, keys_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from ftfile.log.commit_log import CommitLog
    from ftfile.log.state import LogState
    from ftfile.storage.api import FileSystem


# The limit of values in a dead letter. As values of Python, each bracket, brace and comma can take 80 bytes.
LETTER_BYTES_MAX, LETTER_VALUES_MAX = 128 << 20, 2_000_000
_READ_BYTES = 1 << 20
_REMOVE = "Remove it"


@dataclass(frozen=True, slots=True, kw_only=True)
class DeadLetter:
    """A record that could not be written."""

    reason: str  # names the column, and the value if there is one
    query_id: str  # the streaming query, or the id of the batch write
    batch_id: int  # the micro-batch; 0 for a batch write
    partition: int  # of the task
    row: dict[str, Any]  # the columns as plain JSON


def read_dead_letters(log: CommitLog) -> Iterator[DeadLetter]:
    """Yield all committed dead letters, oldest batch of each query first, with one in memory at a time.

    Files in their directory are committed, since only publishing moves files there. The head names unpublished ones.
    Users can delete files that they have handled.

    In an encrypted directory, dead letters are authentic, each task of a batch has one file, and no batch of a query is
    newer than in the log. After the record of a batch is deleted, the log cannot tell which attempt of a task was
    committed.

    Raises:
        CorruptData: a file does not contain dead letters of tasks, each of at most `LETTER_BYTES_MAX` and
            `LETTER_VALUES_MAX`; the dead letters before it were returned.
    """
    places: dict[str, tuple[str, ...]] = {}
    for owner in list_own(log.fs, layout.DEAD_LETTERS):
        for file in log.fs.list(owner.path):
            places[file.path] = (file.path,)
    head = log.refresh()
    for add in itertools.chain.from_iterable(entry.adds for entry in head.unpublished.values()):
        final = add.final_path or ""
        if final.startswith(f"{layout.DEAD_LETTERS}/"):
            places[final] = (final, add.path, final)
    if keys_of(log.fs) is not None:
        for path in places:
            _check_is_encrypted(path)
        _check_tasks(places, head)
    return _letters_in_order(log.fs, places)


def _letters_in_order(fs: FileSystem, places: Mapping[str, tuple[str, ...]]) -> Iterator[DeadLetter]:
    for path in sorted(places):
        yield from _letters_of(fs, path, places[path])


def letter_excess(line: bytes) -> str:
    """Return the limit that a dead letter exceeds, given as a line of JSON; empty if it exceeds none."""
    if len(line) > LETTER_BYTES_MAX:
        return f"more than {LETTER_BYTES_MAX} bytes"
    # A shorter line cannot have too many values; counting takes longer than everything else.
    if len(line) > LETTER_VALUES_MAX and sum(map(line.count, (b"[", b"{", b","))) > LETTER_VALUES_MAX:
        return f"more than {LETTER_VALUES_MAX} brackets, braces and commas"
    return ""


def _check_is_encrypted(path: str) -> None:
    # No record contains their names, so any program could have put them there.
    if AesGcm.name not in layout.dead_letter_filters(path):
        raise CorruptData(path, "encrypted dead letters", "dead letters that were not written here", _REMOVE)


def _check_tasks(paths: Iterable[str], head: LogState) -> None:
    """Refuse an authentic file that no commit can have published."""
    seen: dict[layout.DeadLetterTask, str] = {}
    for path in sorted(paths):
        task = _task(path)
        first = seen.setdefault(task, path)
        if first != path:
            raise CorruptData(
                path, "a task's dead letters once", f"dead letters of the same task as in {first!r}", _REMOVE
            )
        query = head.queries.get(task.owner)
        if query is not None and task.batch > query.last_batch:
            actual = f"batch {task.batch}, but the last batch in the log is {query.last_batch}"
            raise CorruptData(path, "dead letters of a batch that was committed", actual, _REMOVE)


def _task(path: str) -> layout.DeadLetterTask:
    task = layout.dead_letter_task(path)
    if task is None:
        raise CorruptData(path, "dead letters with the name of their task", "another name", _REMOVE)
    return task


def _letters_of(fs: FileSystem, path: str, places: Sequence[str]) -> Iterator[DeadLetter]:
    """Yield the dead letters of a file; none if it was deleted."""
    names, keys = layout.dead_letter_filters(path), keys_of(fs)
    stored = _read_stored(fs, places)
    start = next(stored, b"")
    if not start:
        return
    with stream_errors(path):
        decoder = Chain.for_reading(names, keys).decoder(identity_of_letters(fs, path))
    for line in _lines(plain_pieces(chain((start,), stored), decoder, path), path):
        letter = _letter(line, path)
        task = layout.DeadLetterTask(letter.query_id, letter.batch_id, letter.partition)
        if keys is not None and task != _task(path):
            raise CorruptData(path, f"dead letters of {_task(path)}", f"dead letters of {task}", _REMOVE)
        yield letter


def _read_stored(fs: FileSystem, places: Sequence[str]) -> Iterator[bytes]:
    """Yield the content of a file that can move from one place to the next during the read."""
    position = 0
    for place in places:
        with contextlib.suppress(NotFound), fs.open(place) as file:
            while data := file.read_at(position, _READ_BYTES):
                yield data
                position += len(data)
            return
    if position:
        raise NotFound("read", places[-1], "it was deleted during the read")


def _lines(pieces: Iterable[bytes], path: str) -> Iterator[bytes]:
    """Yield the lines of a file; CorruptData for a line longer than a dead letter, whose rest is not read."""
    begun: list[bytes] = []
    size_bytes = 0
    for piece in pieces:
        *ends, rest = piece.split(b"\n")
        for end in ends:
            yield b"".join((*begun, end))
            begun, size_bytes = [], 0
        begun.append(rest)
        size_bytes += len(rest)
        if size_bytes > LETTER_BYTES_MAX:
            raise CorruptData(path, f"lines of at most {LETTER_BYTES_MAX} bytes", "a longer one", _REMOVE)
    if size_bytes:
        yield b"".join(begun)


def _letter(line: bytes, path: str) -> DeadLetter:
    if excess := letter_excess(line):
        raise CorruptData(path, "dead letters that can be read", f"one of {excess}", _REMOVE)
    try:
        text = json.loads(line)
        letter = DeadLetter(
            reason=text["reason"],
            query_id=text["queryId"],
            batch_id=text["batchId"],
            partition=text["partition"],
            row=text["row"],
        )
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise CorruptData(path, "dead letters, one JSON object a line", f"{line[:80]!r}") from error
    types = []
    for value in (letter.reason, letter.query_id, letter.batch_id, letter.partition, letter.row):
        types.append(type(value))
    if types != [str, str, int, int, dict]:
        raise CorruptData(path, "dead letters, one JSON object a line", f"{line[:80]!r}")
    return letter
