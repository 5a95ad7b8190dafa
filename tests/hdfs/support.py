"""Helpers of the tests of the whole sink on HDFS."""

from __future__ import annotations

import itertools
from collections import Counter
from typing import TYPE_CHECKING, Any

import ftfile
from ftfile.testing.checker import check_directory
from ftfile.testing.context import open_filesystem

if TYPE_CHECKING:
    from ftfile.testing.checker import DirectoryReport

COLUMNS = {"value": "string"}
TEXT = {"fileFormat": "text"}

_numbers = itertools.count()


def new_directory() -> str:
    return f"/sink-{next(_numbers)}"


def rows(*letters: str) -> list[dict[str, Any]]:
    return [{"value": letter} for letter in letters]


def checked(url: str, *letters: str) -> DirectoryReport:
    """Check the directory: a plain lister and ftfile's reader see each of these rows once."""
    report = check_directory(open_filesystem(url))
    assert report.live_rows == report.visible_rows == Counter(letter.encode() for letter in letters)
    assert sorted(ftfile.open(url).to_arrow().column("value").to_pylist()) == sorted(letters)
    return report
