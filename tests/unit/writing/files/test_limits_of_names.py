"""Beyond each bound of names and of a process's caches, batches continue, and no row is lost or duplicated."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

import ftfile
from ftfile.core.errors import ConfigError, CorruptData, EncodingError, NotFound
from ftfile.core.per_process import OnePerKey
from ftfile.log.read import snapshot
from ftfile.storage.paths import NAME_BYTES_MAX
from ftfile.testing.checker import check_directory
from ftfile.testing.context import current, open_filesystem
from ftfile.testing.micro_batch import MicroBatch
from ftfile.writing import options as attempt_options
from ftfile.writing.batch import ABORTED_JOB_RECORDS, abort_batch, commit_batch, plan_write
from ftfile.writing.files import file_writer as writer
from ftfile.writing.files.file_options import CONFIGS_KEPT
from ftfile.writing.files.file_writer import FileSink
from ftfile.writing.files.naming import PATH_BYTES_MAX
from ftfile.writing.messages import OperationIdentity
from ftfile.writing.options import MORE_DIGITS
from tests.kit.parameters import parametrize

if TYPE_CHECKING:
    from pathlib import Path

COLUMNS = {"id": "long", "name": "string"}


@pytest.fixture
def out(tmp_path: Path) -> str:
    return str(tmp_path / "out")


def query(out: str, **options: str) -> MicroBatch:
    return MicroBatch(out, COLUMNS, {"fileFormat": "json"} | options)


def row(name: str, number: int = 0) -> dict[str, Any]:
    return {"id": number, "name": name}


def path_of(size_bytes: int) -> str:
    """Return a path of this number of bytes, whose last name is short."""
    whole, left = divmod(size_bytes - 2, 200)
    assert left, "a name would be empty"
    return "/".join(["d" * 199] * whole + ["e" * left, "f"])


@pytest.mark.parametrize("size_bytes", [PATH_BYTES_MAX, PATH_BYTES_MAX + 1])
def test_a_path_of_the_greatest_length(out: str, size_bytes: int) -> None:
    name = path_of(size_bytes)
    assert len(name) == size_bytes
    stream = query(out, fileNameColumn="name", badRecords="deadLetter")
    stream.run(0, [[row(name), row("good")]])
    is_kept = size_bytes <= PATH_BYTES_MAX
    assert ftfile.open(out).to_arrow().num_rows == 1 + is_kept
    assert [letter.row["name"] for letter in ftfile.open(out).dead_letters()] == [name] * (not is_kept)
    check_directory(open_filesystem(out))


@parametrize("size_bytes", [NAME_BYTES_MAX, NAME_BYTES_MAX + 1], quick=1)
@pytest.mark.parametrize("by", ["fileNameColumn", "partitionBy"])
def test_a_directory_of_the_greatest_length(out: str, by: str, size_bytes: int) -> None:
    name = "d" * size_bytes + "/f" if by == "fileNameColumn" else "d" * (size_bytes - len("name="))
    stream = query(out, **{by: "name"})
    if size_bytes > NAME_BYTES_MAX:
        with pytest.raises(EncodingError, match=str(NAME_BYTES_MAX)):
            stream.run(0, [[row(name)]])
        name = "short"
    stream.run(0, [[row(name)]])
    assert ftfile.open(out).to_arrow()["name"].to_pylist() == [name]


class TestDigits:
    """Names have room for more digits than a first name has."""

    def test_are_enough_for_the_greatest_batch_id(self, out: str) -> None:
        stream = query(out, fileNameColumn="name", onGap="accept")
        longest = "n" * stream.config().publishing.naming.stem_bytes_max(".json")
        assert len(f"{longest}-0000000000-00000-0123456789ab.json") == NAME_BYTES_MAX - MORE_DIGITS
        stream.run(2**63 - 1, [[row(longest)]])
        assert ftfile.open(out).to_arrow().num_rows == 1
        with pytest.raises(EncodingError, match="a part may have at most"):
            stream.run(2**63, [[row(longest + "n")]])

    def test_that_there_is_no_room_for_are_refused_before_the_record(
        self, out: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr("ftfile.writing.files.naming.MORE_DIGITS", 0)
        stream = query(out, fileNameColumn="name", onGap="accept")
        longest = "n" * stream.config().publishing.naming.stem_bytes_max(".json")
        stream.run(10**10 - 1, [[row(longest)]])
        with pytest.raises(ConfigError, match="has a part of 256 bytes"):
            stream.run(10**10, [[row(longest)]])
        assert ftfile.open(out).version() == 0
        stream.run(10**10, [[row("short")]])
        assert ftfile.open(out).to_arrow().num_rows == 2


@pytest.mark.slow
def test_more_directories_than_a_process_keeps(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    logs: OnePerKey[Any, Any] = OnePerKey(attempt_options._open_log, attempt_options.LOGS_KEPT)  # noqa: SLF001
    planners: OnePerKey[Any, Any] = OnePerKey(writer._new_planner, writer.PLANNERS_KEPT)  # noqa: SLF001
    monkeypatch.setattr(attempt_options, "_logs", logs)
    monkeypatch.setattr(writer, "_planners", planners)
    kept = max(attempt_options.LOGS_KEPT, writer.PLANNERS_KEPT, CONFIGS_KEPT)
    options = {"rolling": "policy", "maxBatchesPerFile": "2"}
    streams = [query(str(tmp_path / str(number)), **options) for number in range(kept + 1)]
    for batch in range(5):
        for stream in streams:
            stream.run(batch, [[row("a", batch)]])
        assert len(logs._objects.here.made) == attempt_options.LOGS_KEPT  # noqa: SLF001
        assert len(planners._objects.here.made) == writer.PLANNERS_KEPT  # noqa: SLF001
    for stream in streams:
        assert [file.rows for file in ftfile.open(stream.path).files()] == [2, 2]
        assert sorted(ftfile.open(stream.path).to_arrow()["id"].to_pylist()) == [0, 1, 2, 3, 4]
        check_directory(open_filesystem(stream.path))


@pytest.mark.slow
def test_a_job_behind_more_records_than_abort_looks_at(out: str, caplog: pytest.LogCaptureFixture) -> None:
    stream = query(out)
    message = stream.run_task(stream.pickled_plan(), OperationIdentity("job"), 0, [row("a")])
    planned = plan_write(FileSink(), stream.config(), current())
    commit_batch(planned.sink, planned.config, [message], None, current())
    for batch in range(ABORTED_JOB_RECORDS - 1):
        stream.run(batch, [[]])
    abort_batch(planned.config, [message], None, current())
    assert "operation job is committed as version 0" in caplog.text
    caplog.clear()
    stream.run(ABORTED_JOB_RECORDS - 1, [[]])
    abort_batch(planned.config, [message], None, current())
    assert "in none of the last 16 versions; 1 staged files stay until vacuum deletes them" in caplog.text
    assert ftfile.open(out).to_arrow().num_rows == 1


def test_ranges_that_are_replaced_again_and_again(out: str, monkeypatch: pytest.MonkeyPatch) -> None:
    stream = query(out)
    stream.run(0, [[row("a")]])
    log = stream.config().log(current())
    head = replace(log.refresh(), log_start=1)
    monkeypatch.setattr(log, "refresh", lambda: head)
    tried: list[None] = []

    def gone(*_: object) -> None:
        tried.append(None)
        raise NotFound("open", "range", "gone")

    monkeypatch.setattr(snapshot, "_added_in_compacted", gone)
    with pytest.raises(CorruptData, match="neither"):
        snapshot.added_by(log, 0)
    assert len(tried) == snapshot.ADDED_TRIES
