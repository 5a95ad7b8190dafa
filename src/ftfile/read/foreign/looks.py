"""Looks at the contents of listed files, as matching asks for them."""

from __future__ import annotations

from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING

from ftfile.core.errors import NotFound, StorageError
from ftfile.read.foreign.known import fingerprints
from ftfile.read.foreign.matching import CHANGED, Failure
from ftfile.storage.calls import parallel

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from ftfile.read.foreign.file_table import Row
    from ftfile.read.foreign.known import Fingerprints
    from ftfile.read.foreign.matching import Answer, Look
    from ftfile.storage.api import FileSystem, InputFile


@contextmanager
def open_listed(fs: FileSystem, row: Row) -> Iterator[InputFile | None]:
    """Open a file; None if it is gone, another one is at its path now, or it is shorter than it was listed.

    Raises:
        StorageError: it cannot be opened.
    """
    try:
        file = fs.open(row.path)
    except NotFound:
        yield None
        return
    with file:
        try:
            # A rotation may come between: its path is looked at once it is open.
            is_in_place = row.identity is None or fs.stat(row.path).identity == row.identity
        except NotFound:
            is_in_place = False
        yield file if is_in_place and file.size_bytes >= row.size_bytes else None


class Looks:
    """Answers to looks, those of before for files that are as they were then.

    Attributes:
        prints: by key, the marks of a file, and the fingerprints that a look saw.
    """

    def __init__(self, fs: FileSystem) -> None:
        self._fs = fs
        self.prints: dict[bytes, tuple[object, Mapping[int, Fingerprints]]] = {}

    def answers_to(self, looks: Sequence[Look], is_due: Callable[[Row], bool]) -> dict[int, Answer]:
        """Return the answers by place; `CHANGED` for files of which none is due yet."""
        answers: dict[int, Answer] = {}
        new = []
        for look in looks:
            row = look.row
            marks, prints = self.prints.get(row.key, (None, {}))
            if marks == row.marks and look.positions <= prints.keys():
                answers[row.place] = prints
            elif is_due(row):
                new.append(look)
            else:
                answers[row.place] = CHANGED
        for look, answer in zip(new, parallel(self._fs, partial(answer_to, self._fs), new), strict=True):
            answers[look.row.place] = answer
            if not isinstance(answer, Failure):
                self.prints[look.row.key] = look.row.marks, answer
        return answers


def answer_to(fs: FileSystem, look: Look) -> Answer:
    """Return the fingerprints that are asked for, or why there are none."""
    try:
        with open_listed(fs, look.row) as file:
            if file is None:
                return CHANGED
            # One that is cut off and written anew between two reads has a content that it never had: it is read twice.
            first, second = ({at: fingerprints(file.read_at, at) for at in look.positions} for _ in range(2))
    except NotFound:
        return CHANGED
    except StorageError as error:
        return Failure(error)
    answer = {position: prints for position, prints in first.items() if prints is not None}
    return answer if first == second == answer else CHANGED
