from __future__ import annotations

from typing import TYPE_CHECKING

from ftfile.storage.secret_variables import digest_of_variables

if TYPE_CHECKING:
    import pytest


def test_a_digest_tells_values_apart_and_not_what_they_are(monkeypatch: pytest.MonkeyPatch) -> None:
    names = ("FTFILE_FIRST", "FTFILE_SECOND")
    found = set()
    for values in (("s3cret", "b"), ("s3cre", "tb"), ("s3cret", "b\udcff"), ("s3cret", "b")):
        for name, value in zip(names, values, strict=True):
            monkeypatch.setenv(name, value)
        digest = digest_of_variables(names)
        assert digest is not None
        assert "s3cret" not in digest
        found.add(digest)
    assert len(found) == 3
    monkeypatch.delenv("FTFILE_SECOND")
    assert digest_of_variables(names) is None
    assert digest_of_variables(()) is not None
