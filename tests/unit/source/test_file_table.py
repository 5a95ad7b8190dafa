"""The join of a listing with the known files, as columns."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING

import pytest

from ftfile.source.contents import CONTENT_BYTES_MIN, Fingerprints, fingerprints
from ftfile.source.file_table import Table
from ftfile.source.known_files import KnownFiles
from ftfile.source.known_rows import KnownFile, key_of
from ftfile.source.plan import Range, SourcePlan
from tests.unit.source.tailing import Tailing

if TYPE_CHECKING:
    from ftfile.source.listing import Listing


def listed(*paths: str) -> tuple[Listing, str]:
    """Return a listing of files, and the root of the listing."""
    tailing = Tailing()
    for path in paths:
        tailing.write(path, "x" * 400)
    return tailing.planner.list(), tailing.settings.root


def prints(content: bytes) -> Fingerprints:
    marks = fingerprints(lambda offset, length: content[offset : offset + length], len(content))
    assert marks is not None
    return marks


def by_start(table: Table, start: str) -> set[tuple[bytes, int]]:
    return {(file.key, place) for file, place in table.known_by_start(start)}


@pytest.mark.parametrize("seed", range(5))
def test_known_files_are_found_by_the_start_of_their_content(seed: int) -> None:
    """All files of which at least 256 bytes were read, with their places in the listing; -1 for a deleted file."""
    draw = random.Random(seed)
    listing, root = listed("a", "b", "c")
    contents = {}
    for path in ("in/a", "in/b", "in/gone", "in/lost", "in/other"):
        beginning = draw.choice([b"one", b"two"]) * CONTENT_BYTES_MIN
        contents[path] = beginning[: draw.choice([CONTENT_BYTES_MIN - 1, CONTENT_BYTES_MIN, 600])]
    ranges = [Range(path, 0, len(data), *prints(data), len(data), 5) for path, data in contents.items()]
    table = Table(listing, KnownFiles().apply(SourcePlan(tuple(ranges), root=root)))
    for beginning in (b"one", b"two", b"six"):
        start = prints(beginning * CONTENT_BYTES_MIN).start
        assert by_start(table, start) == {
            (key_of(root, path), listing.paths.index(path) if path in listing.paths else -1)
            for path, data in contents.items()
            if data.startswith(beginning) and len(data) >= CONTENT_BYTES_MIN
        }


def test_a_parked_file_is_found_by_what_was_read_of_it() -> None:
    listing, root = listed("a")
    content = b"one" * CONTENT_BYTES_MIN
    key = key_of(root, "in/a")
    file = KnownFile(key, len(content), 900, 5, b"\1" * 8, *prints(content), is_parked=True)
    known = KnownFiles()
    known._pending = {key: file.pack()}  # noqa: SLF001
    assert by_start(Table(listing, known), prints(content).start) == {(key, listing.paths.index("in/a"))}


def test_a_table_takes_the_places_of_known_files_from_the_one_before_while_both_are_the_same() -> None:
    tailing = Tailing()
    for path in ("a", "b"):
        tailing.write(path, "x" * 400)
    listing = tailing.planner.list()
    known = KnownFiles()
    before = Table(listing, known)
    tailing.append("b", "y")
    grown = tailing.planner.list()
    assert Table(grown, known, before=before).index is before.index
    assert Table(grown, known, before=before).places.tolist() == Table(grown, known).places.tolist()
    content = b"x" * 400
    other = known.apply(SourcePlan((Range("in/a", 0, 400, *prints(content), 400, 5),), root=tailing.settings.root))
    assert (Table(grown, other, before=before).index >= 0).tolist() == [path == "in/a" for path in grown.paths]
    tailing.write("0", "x")
    longer = tailing.planner.list()
    assert Table(longer, known, before=before).index.tolist() == [-1, -1, -1]
