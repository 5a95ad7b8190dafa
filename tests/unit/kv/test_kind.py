"""A store as a kind of directory, where only the files of ftfile are on the path, without metadata of a package."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

import ftfile
from ftfile.core import extensions
from ftfile.kv.kind import STORE
from ftfile.log.commit_log import CommitLog
from ftfile.operate.file_kind import kind_of
from ftfile.testing.context import open_filesystem
from tests.unit.kv.building import Builder

if TYPE_CHECKING:
    from pathlib import Path


def test_a_store_is_known_without_metadata(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = str(tmp_path / "store")
    Builder(path).put({"a": 1})
    monkeypatch.setattr(extensions, "list_installed", lambda _: pytest.fail("metadata was searched"))
    assert kind_of(CommitLog(open_filesystem(path)).refresh()) is STORE
    assert ftfile.status(path).kind == "store"
    assert ftfile.verify(path, full=True).ok
