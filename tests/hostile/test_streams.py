"""A stream continues after a hostile input, if `badRecords` or `ignoreCorruptFiles` is set."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from ftfile.testing.context import repeatable
from tests.hostile.inputs import INPUTS, avro_file, nested, record
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


@pytest.mark.slow
@pytest.mark.usefixtures("nobody_waits")
@pytest.mark.parametrize(
    ("name", "options"),
    [("640 MB of zeros in a.json.zst", {"multiLine": "true"}), ("Avro: 300 MB of zeros by zstd", {})],
)
def test_a_batch_goes_on_behind_a_file_beyond_its_bounds(
    name: str, options: dict[str, str], tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    file = INPUTS[name]
    place = tmp_path / "in"
    place.mkdir()
    given_options = {"fileFormat": file.file_format, "stateLocation": str(tmp_path / "state"), **options}
    run = FilesRun(str(place), {"a": "string"}, given_options | {"ignoreCorruptFiles": "true"}, pause_s=2)
    content = b'{"a":"x"}' if file.file_format == "json" else avro_file(record("string"), 1, b"\2x")
    (place / file.name).write_bytes(file.content())
    for end in ("b", "c"):
        (place / f"{end}.{file.file_format}").write_bytes(content)
        for _ in range(12):  # a file that is read as a whole must be unchanged for a while
            run.run()
    assert [row["a"] for row in run.rows] == ["x", "x"]
    assert f"the rows before the damage are read: 'in/{file.name}' is corrupt" in caplog.text
