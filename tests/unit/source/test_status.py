from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

import pytest

import ftfile
from ftfile.errors import ConfigError, PermissionDenied
from ftfile.source.plan import PlanPosition, SourcePlan
from ftfile.source.plan_log import PlanLog
from ftfile.storage.local import LocalFileSystem
from ftfile.testing.context import open_filesystem
from tests.kit.files_run import FilesRun
from tests.unit.source.plans import COLUMNS, Source

if TYPE_CHECKING:
    from pathlib import Path

    from ftfile.source.status import SourceStatus
    from ftfile.storage.api import InputFile

pytestmark = pytest.mark.usefixtures("nobody_waits")


def status_of(source: Source, **options: str) -> SourceStatus:
    (found,) = ftfile.source_status(str(source.path), **given(source, **options))
    return found


def given(source: Source, **options: str) -> dict[str, str]:
    return {"fileFormat": "text", "stateLocation": str(source.state), **options}


def test_nothing_was_planned_yet(source: Source) -> None:
    source.add("a.log", 3)
    assert ftfile.source_status(str(source.path), **given(source)) == ()


def test_what_is_behind_is_what_the_newest_plan_left(source: Source) -> None:
    source.add("a.log", 3)
    run = source.query()
    run.run()
    found = status_of(source)
    assert (found.plan, found.known, found.files_behind, found.bytes_behind) == (0, 1, 0, 0)
    assert found.oldest_unread_ms is None
    assert found.time_ms is not None
    source.add("a.log", 2)
    source.add("b.log", 1)
    earlier_s = int((source.path / "a.log").stat().st_mtime) - 100 + 0.5
    os.utime(source.path / "b.log", (earlier_s, earlier_s))
    found = status_of(source)
    assert (found.plan, found.known, found.files_behind) == (0, 1, 2)
    assert found.bytes_behind == sum(len(line) + 1 for line in source.lines[3:])
    assert found.oldest_unread_ms == earlier_s * 1000
    run.run()
    assert status_of(source).bytes_behind == 0


def test_a_renamed_log_is_behind_by_its_rest_only(source: Source) -> None:
    source.add("app.log", 3)
    source.query().run()
    source.add("app.log", 1)
    rest = len(source.lines[-1]) + 1
    (source.path / "app.log").rename(source.path / "app.log.1")
    assert status_of(source).bytes_behind == rest
    source.add("app.log", 1)
    found = status_of(source)
    assert (found.files_behind, found.bytes_behind) == (2, rest + len(source.lines[-1]) + 1)


def test_a_log_that_was_cut_off_or_replaced_is_behind_from_its_start(source: Source) -> None:
    source.add("app.log", 3)
    source.add("other.log", 3)
    source.query().run()
    (source.path / "app.log").write_text("cut off\n")
    assert status_of(source).bytes_behind == len("cut off\n")
    (source.path / "new.log").write_text("a longer content than that of the log in whose place it is\n")
    size_bytes = (source.path / "new.log").stat().st_size
    (source.path / "new.log").rename(source.path / "other.log")
    found = status_of(source)
    assert (found.files_behind, found.bytes_behind) == (2, len("cut off\n") + size_bytes)


def test_files_that_are_left_out_are_named(source: Source) -> None:
    options: dict[str, Any] = given(source, fileFormat="parquet", minFileAge="0s", maxFileAge="1d", scanInterval="0s")
    for name, content in (("torn", b"PAR1 and no end"), ("whole", b"PAR1 anything PAR1")):
        (source.path / f"{name}.parquet").write_bytes(content)
    run = FilesRun(str(source.path), COLUMNS, options)
    stream = run._new_stream()  # noqa: SLF001 - no rows are read
    first = stream.latest_offset({"kind": "start"})
    (source.path / "old.parquet").write_bytes(b"PAR1 anything PAR1")
    os.utime(source.path / "old.parquet", (1_000_000_000, 1_000_000_000))
    (source.path / "next.parquet").write_bytes(b"PAR1 another PAR1")
    assert stream.latest_offset(first) != first
    found = status_of(source, **options)
    (torn,) = found.parked
    assert (torn.path.rpartition("/")[2], torn.reason) == (
        "torn.parquet",
        "its end is not the end of a complete parquet file",
    )
    assert found.late == 1
    assert [late.path.rpartition("/")[2] for late in found.late_files] == ["old.parquet"]
    assert (found.files_behind, found.plan) == (0, 1)


def test_refused_files_are_named_while_they_are_there(source: Source, monkeypatch: pytest.MonkeyPatch) -> None:
    open_file = LocalFileSystem.open

    def refuse(storage: LocalFileSystem, path: str) -> InputFile:
        if path.endswith("b.log"):
            raise PermissionDenied("open", path, "as the test wants it")
        return open_file(storage, path)

    monkeypatch.setattr(LocalFileSystem, "open", refuse)
    source.add("a.log")
    (source.path / "b.log").write_text("b\n")
    source.query(maxRetries="0").run()
    (file,) = status_of(source).refused
    assert file.path == "in/b.log"
    assert "as the test wants it" in file.reason
    (source.path / "b.log").unlink()
    assert status_of(source).refused == ()


def test_sources_of_other_paths_are_left_out(source: Source, tmp_path: Path) -> None:
    source.add("a.log")
    for _ in range(2):
        source.query().run()
    (tmp_path / "elsewhere").mkdir()
    other = Source(tmp_path / "elsewhere")
    other.state = source.state
    other.add("b.log")
    other.query().run()
    assert len(ftfile.source_status(str(source.path), **given(source))) == 2
    assert len(ftfile.source_status(str(other.path), **given(source))) == 1
    assert ftfile.source_status(str(tmp_path / "elsewhere" / "nothing" / "here"), **given(source)) == ()


def test_options_are_no_mistake_for_a_stream_of_another_path(source: Source, tmp_path: Path) -> None:
    """Both streams use the same state location."""
    (tmp_path / "elsewhere").mkdir()
    other = Source(tmp_path / "elsewhere")
    other.state = source.state
    (other.path / "a.json").write_text('{"value": "1"}\n')
    options = {"fileFormat": "json", "multiLine": "true", "minFileAge": "0s", "stateLocation": str(source.state)}
    FilesRun(str(other.path), COLUMNS, options).run()
    source.add("a.log")
    source.query().run()
    assert status_of(source).known == 1
    (found,) = ftfile.source_status(other.path, stateLocation=source.state)
    assert found.known == 1


def test_mistakes_are_told(source: Source) -> None:
    with pytest.raises(ConfigError, match="stateLocation"):
        ftfile.source_status(str(source.path), fileFormat="text")
    with pytest.raises(ConfigError, match="did you mean fileIdentity"):
        ftfile.source_status(str(source.path), **given(source, fileIdentiti="content"))


@pytest.mark.slow
def test_options_are_in_the_state(source: Source) -> None:
    """The options of the newest plan apply unless others are given. If the state has no options, they are required."""
    source.add("a.log")
    run = source.query(filePattern=r".*\.log")
    run.run()
    source.add("b.log")
    source.add("c.txt")
    assert ftfile.source_status(source.path, stateLocation=source.state)[0].files_behind == 1
    assert ftfile.source_status(source.path, stateLocation=source.state, filepattern=".*")[0].files_behind == 2
    run.options = {**run.options, "filePattern": r".*\.txt"}
    run.restart()
    run.run()
    assert ftfile.source_status(source.path, stateLocation=source.state)[0].files_behind == 0
    other = "f" * 32
    fs = open_filesystem(str(source.state / other))
    PlanLog(fs, other, "run").add(PlanPosition(other, -1, ""), SourcePlan(low=1, root=f"file://{source.path.parent}"))
    with pytest.raises(ConfigError, match="fileFormat is missing"):
        ftfile.source_status(source.path, stateLocation=source.state)


def test_options_may_be_values_of_python(source: Source) -> None:
    source.add("a.log")
    source.query().run()
    options: dict[str, object] = {"maxFilesPerTrigger": 1, "recursiveFileLookup": True, "stateLocation": source.state}
    (status,) = ftfile.source_status(str(source.path), fileFormat="text", **options)
    assert status.known == 1
