from __future__ import annotations

import pytest

from ftfile.log.format import layout
from ftfile.log.format.layout import directory_key, directory_of, stem_of


@pytest.mark.parametrize(("directory", "stem"), [("", ""), ("a=1/b", ""), ("", "stem"), ("a=1/b", "stem")])
def test_a_key_is_its_directory_and_its_stem(directory: str, stem: str) -> None:
    key = directory_key(directory, stem)
    assert (directory_of(key), stem_of(key)) == (directory, stem)


def test_identities_on_storage() -> None:
    """Identities distinguish pieces. They do not change when the directory is moved or letters are published."""
    spool = f"{layout.staged_directory('query')}/00001-0-0123456789abcdef.spool"
    assert layout.storage_identity("part", spool) == "part 0123456789ab@0"
    assert layout.storage_identity("segment", spool, 7) == "segment 0123456789ab@7"
    letters = layout.dead_letter_path("query", 3, 1, "0123456789abcdef", ["gzip", "a-cipher"])
    assert letters.endswith("-0123456789ab.gzip.a-cipher.deadLetters")
    assert layout.dead_letter_filters(letters) == ("gzip", "a-cipher")
    assert layout.storage_identity("deadLetters", letters) == layout.storage_identity("deadLetters", spool)
    assert layout.dead_letter_task(letters) == ("query", 3, 1)
    assert layout.dead_letter_task(f"{letters}.x") is layout.dead_letter_task(letters[:-1]) is None
    assert layout.dead_letter_filters(layout.dead_letter_path("query", 3, 1, "0123")) == ()
