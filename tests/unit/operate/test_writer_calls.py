"""The storage calls of a small commit of `ftfile.writer`; on a storage system each is a request."""

from __future__ import annotations

from pathlib import PurePosixPath
from typing import TYPE_CHECKING

from ftfile.storage import local
from ftfile.storage.local_system import resolve
from tests.unit.operate.numbered_rows import numbers_of, opened, rows

if TYPE_CHECKING:
    from contextlib import AbstractContextManager
    from pathlib import Path

    import pytest

    from ftfile.storage.local_system import Name

COMMITS = 5
# The call and the end of the file's name. A rename has two names.
CALLS = [
    # write: the newest record shows that the directory was not replaced
    ("open", ".record"),
    # commit: the task writes a file, and checks its length
    ("create", ".staged"),
    ("stat", ".staged"),
    # the driver checks the same, and that the file is visible to it
    ("open", ".record"),
    ("stat", ".staged"),
    ("sync_directory", ""),
    ("create_exclusive", ".record"),
    ("rename", ".staged"),
    ("rename", ".parquet"),
    ("sync_directory", ""),
    ("put", ""),
]


def test_the_calls_of_a_small_commit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """No checkpoint is listed, because no vacuum can have deleted a record after the last one of this process."""
    calls: list[tuple[str, str]] = []

    def recorded(operation: str, path: str, *place: str, follow: bool) -> AbstractContextManager[Name]:
        calls.append((operation, PurePosixPath(path).suffix))
        return resolve(operation, path, *place, follow=follow)

    monkeypatch.setattr(local, "resolve", recorded)
    out = str(tmp_path / "out")
    with opened(out, file_format="parquet") as writer:
        for number in range(COMMITS):
            calls.clear()
            writer.write(rows(number))
            writer.commit(number)
    assert calls == CALLS
    assert numbers_of(out) == [*range(COMMITS)]
