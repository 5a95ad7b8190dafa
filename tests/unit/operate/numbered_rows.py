"""Programs that write numbers by `ftfile.writer`, and the numbers that readers find."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa

import ftfile
from ftfile.core.errors import OutcomeUnknown, PermissionDenied
from ftfile.storage.local import LocalFileSystem
from ftfile.testing.context import current

if TYPE_CHECKING:
    import pytest

    from ftfile.operate.writers.application_writer import DirectoryWriter

__all__ = ("lose_the_response", "numbers_of", "opened", "rows", "staged", "visible")


def rows(*numbers: int) -> pa.Table:
    return pa.table({"n": pa.array(numbers, pa.int64())})


def opened(out: str, app_id: str = "orders", **options: Any) -> DirectoryWriter:
    options.setdefault("file_format", "json")
    return ftfile.writer(out, app_id, context=current(), **options)


def numbers_of(out: str) -> list[int]:
    return sorted(ftfile.open(out, context=current()).to_arrow()["n"].to_pylist())


def visible(out: str) -> list[int]:
    """Return the numbers that a plain reader finds in the visible JSON files."""
    found = []
    for path in Path(out).rglob("*.json"):
        if not any(part.startswith("_") for part in path.relative_to(out).parts):
            found += [json.loads(line)["n"] for line in path.read_text().splitlines()]
    return sorted(found)


def staged(out: str) -> list[Path]:
    return [path for path in Path(out, "_ftfile/staged").rglob("*") if path.is_file()]


def lose_the_response(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the next record be created, and all later calls fail."""
    create = LocalFileSystem.create_exclusive

    def fail(*_: Any) -> Any:
        raise PermissionDenied("read", "", "it fails")

    def lost(fs: LocalFileSystem, path: str, content: bytes) -> Any:
        create(fs, path, content)
        for name in ("read", "open", "list", "stat"):
            monkeypatch.setattr(LocalFileSystem, name, fail)
        raise OutcomeUnknown("create", path, "no response")

    monkeypatch.setattr(LocalFileSystem, "create_exclusive", lost)
