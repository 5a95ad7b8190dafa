"""A stream goes on behind a hostile input, as `badRecords` and `ignoreCorruptFiles` say."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from ftfile.testing.context import repeatable
from tests.hostile.inputs import nested
from tests.kit.files_run import FilesRun

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

DEEP_LINE = b'{"a":' + nested(b"[", b"", b"]", 10_001) + b"}\n"


@pytest.fixture
def nobody_waits() -> Iterator[None]:
    with repeatable():
        yield


@pytest.mark.usefixtures("nobody_waits")
@pytest.mark.parametrize("kept", [[], [DEEP_LINE[:-1].decode()]])
def test_deep_lines_are_bad_records_among_others(kept: list[str], tmp_path: Path) -> None:
    place = tmp_path / "in"
    place.mkdir()
    options = {"fileFormat": "json", "badRecords": "drop", "stateLocation": str(tmp_path / "state")}
    columns = {"a": "string"} | ({"_corrupt_record": "string"} if kept else {})
    run = FilesRun(str(place), columns, options, pause_s=2)
    (place / "a.json").write_bytes(b'{"a":"x"}\n' + DEEP_LINE + b'{"a":"y"}\n')
    run.run()
    (place / "b.json").write_bytes(b'{"a":"z"}\n')
    run.run()
    assert [row["a"] for row in run.rows] == ["x", *[None for _ in kept], "y", "z"]
    assert [row["_corrupt_record"] for row in run.rows if row.get("_corrupt_record")] == kept
