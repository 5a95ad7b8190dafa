"""The text: Python's help pages in files that a stream reads in order, and an independent count of their words."""

from __future__ import annotations

import os
import re
from collections import Counter
from itertools import accumulate
from pydoc_data.topics import topics
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from pathlib import Path

__all__ = ("Text", "words_in", "write_text")

WORD = re.compile("[a-z]+")


class Text(NamedTuple):
    """A text in files.

    Attributes:
        files: in their order.
        counts: the number of occurrences of each word.
        totals: the number of words before each file, and in all.
    """

    files: list[Path]
    counts: Counter[str]
    totals: list[int]


def words_in(text: str) -> list[str]:
    """Return the words: runs of letters, in lower case."""
    return WORD.findall(text.lower())


def write_text(directory: Path, files: int, times: int) -> Text:
    """Write the text the given number of times, in a number of files with increasing modification times."""
    lines = [line for _ in range(times) for topic in topics.values() for line in topic.splitlines() if line.isascii()]
    directory.mkdir()
    paths, counts, sizes = [], Counter[str](), []
    for number in range(files):
        piece = "\n".join(lines[len(lines) * number // files : len(lines) * (number + 1) // files]) + "\n"
        path = directory / f"text-{number:05d}.txt"
        path.write_text(piece, encoding="ascii")
        os.utime(path, (1_700_000_000 + number, 1_700_000_000 + number))
        found = words_in(piece)
        counts.update(found)
        sizes.append(len(found))
        paths.append(path)
    return Text(paths, counts, [0, *accumulate(sizes)])
