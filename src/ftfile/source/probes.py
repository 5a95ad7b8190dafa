"""Probes of the contents of listed files, as the rules of `matching` request them."""

from __future__ import annotations

import math
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, TypeVar

from ftfile.core.errors import CorruptData, NotFound, StorageError
from ftfile.filters.chain import Chain
from ftfile.filters.decoded import plain_pieces
from ftfile.source.contents import WINDOW_BYTES, codec_as_written, fingerprints, marks_of
from ftfile.source.matching import CHANGED, Content, Failure
from ftfile.storage.api import lasting_identity
from ftfile.storage.calls import parallel

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterable, Iterator, Sequence

    from ftfile.source.contents import Fingerprints
    from ftfile.source.copies import Answers
    from ftfile.source.file_table import Row
    from ftfile.source.matching import Answer, ContentProbe
    from ftfile.storage.api import FileSystem, InputFile

Result = TypeVar("Result")

_READ_BYTES = 64 << 10


@contextmanager
def open_listed(fs: FileSystem, row: Row) -> Iterator[InputFile | None]:
    """Open a file; None if it is deleted, replaced by another file at its path, or shorter than listed.

    Raises:
        StorageError: the file cannot be opened.
    """
    try:
        file = fs.open(row.path)
    except NotFound:
        yield None
        return
    with file:
        try:
            # A rotation may happen in between, so the path is checked after the file is open.
            is_in_place = row.identity is None or lasting_identity(fs.stat(row.path).identity) == row.identity
        except NotFound:
            is_in_place = False
        yield file if is_in_place and file.size_bytes >= row.size_bytes else None


@dataclass(slots=True, kw_only=True)
class FileMemory:
    """Cached results of probes of the file of one path, in this process."""

    path: str = ""  # empty if unknown
    state: object = None  # of the listed file, for which the next two fields hold
    content: Content | None = None  # fingerprints of the stored bytes from a probe
    until_s: float = -math.inf  # time of the next probe; earlier probes find nothing
    failures: int = 0  # consecutive failures
    error: str = ""  # the last error
    missing_since: int | None = None  # number of the first listing without the file
    is_reported: bool = False  # True if the loss was reported
    used_in: int = 0  # number of the last listing that used this memory

    def begin(self, state: object) -> None:
        """Forget the results of another state of the file."""
        if self.state != state:
            self.state, self.content, self.until_s = state, None, -math.inf


class ContentProbes:
    """Executes probes. Results are reused for files that did not change.

    Args:
        fs: the file system with the files.
        memory_of: returns the memory of a file.
    """

    def __init__(self, fs: FileSystem, memory_of: Callable[[Row], FileMemory]) -> None:
        self._fs = fs
        self._memory_of = memory_of

    def answers_to(self, probes: Sequence[ContentProbe], now_s: float) -> dict[int, Answer]:
        """Return the answers for stored bytes by place; `CHANGED` for files whose next probe is not due yet."""
        answers: dict[int, Answer] = {}
        new = []
        for probe in probes:
            memory = self._memory_of(probe.row)
            if memory.content is not None and probe.positions <= memory.content.prints.keys():
                answers[probe.row.place] = memory.content
            elif memory.until_s <= now_s:
                new.append(probe)
            else:
                answers[probe.row.place] = CHANGED
        for (place, _), answer in self._answers(new).items():
            answers[place] = answer
        for probe in new:
            answer = answers[probe.row.place]
            if isinstance(answer, Content):
                self._memory_of(probe.row).content = answer
        return answers

    def run(self, steps: Generator[list[ContentProbe], Answers, Result]) -> Result:
        """Run steps that yield probes and receive the answers, and return their result."""
        answers: Answers | None = None
        while True:
            try:
                if answers is None:
                    probes = next(steps)
                else:
                    probes = steps.send(answers)
            except StopIteration as end:
                result: Result = end.value
                return result
            answers = self._answers(probes)

    def _answers(self, probes: Sequence[ContentProbe]) -> Answers:
        answers = parallel(self._fs, partial(answer_to, self._fs), probes)
        answer_of = {}
        for probe, answer in zip(probes, answers, strict=True):
            answer_of[probe.row.place, probe.codec] = answer
        return answer_of


def answer_to(fs: FileSystem, probe: ContentProbe) -> Answer:
    """Return the requested fingerprints, or the failure of a probe."""
    try:
        with open_listed(fs, probe.row) as file:
            if file is None:
                return CHANGED
            if probe.codec:
                return _probe_decoded(fs, file, probe)
            return _probe_stored(file, probe)
    except NotFound:
        return CHANGED
    except StorageError as error:
        return Failure(error)


def _probe_stored(file: InputFile, probe: ContentProbe) -> Answer:
    size_bytes = probe.row.size_bytes
    positions = probe.positions or {min(size_bytes, WINDOW_BYTES)}
    # A file that is truncated and rewritten between two reads would give fingerprints of a mixed content, so it is read
    # twice.
    prints = _fingerprints_at(file, positions, size_bytes)
    if prints is None or prints != _fingerprints_at(file, positions, size_bytes):
        return CHANGED
    return Content(prints, size_bytes, file.size_bytes)


def _fingerprints_at(file: InputFile, positions: Iterable[int], size_bytes: int) -> dict[int, Fingerprints] | None:
    """Return the fingerprints at the positions up to a size; None if the file is shorter."""
    prints = {}
    for position in positions:
        if position > size_bytes:
            continue
        print_at = fingerprints(file.read_at, position)
        if print_at is None:
            return None
        prints[position] = print_at
    return prints


def _probe_decoded(fs: FileSystem, file: InputFile, probe: ContentProbe) -> Answer:
    size_bytes = probe.row.size_bytes
    stored = (file.read_at(at, min(_READ_BYTES, size_bytes - at)) for at in range(0, size_bytes, _READ_BYTES))
    codec = codec_as_written(probe.codec, file.read_at)
    pieces = plain_pieces(stored, Chain.for_reading((codec,)).decoder(""), probe.row.path)
    try:
        size, prints = marks_of(pieces if probe.positions else _first_window(pieces), probe.positions)
    except CorruptData as error:
        # A file that changed during the probe cannot be decoded either.
        if fs.stat(probe.row.path).modified_ms == probe.row.modified_ms:
            return Failure(error)
        return CHANGED
    return Content(prints, size, file.size_bytes, codec)


def _first_window(pieces: Iterable[bytes]) -> Iterator[bytes]:
    """Yield the first KiB of a content. Little more is decoded."""
    rest = WINDOW_BYTES
    for piece in pieces:
        yield piece[:rest]
        rest -= len(piece)
        if rest <= 0:
            return
