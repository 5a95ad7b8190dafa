"""The commands `ls`, `history`, `show` and `source`."""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import Any

import pytest

import ftfile
from ftfile.operate.open_directory import OpenedDirectory
from ftfile.read.file_bounds import ColumnBounds
from ftfile.read.foreign.plan import Refused
from ftfile.read.foreign.status import SourceStatus
from ftfile.testing.micro_batch import MicroBatch
from ftfile.tools.cli import output
from ftfile.tools.report.views import offset_text
from tests.kit.files_run import FilesRun
from tests.unit.tools.cli.running import documents, lines, run

QUERY = "00000000-0000-0000-0000-000000000001"


@pytest.mark.slow
def test_ls_lists_what_files_returns(out: str) -> None:
    files = ftfile.open(out).files()
    assert [(line[0], line[1], line[2], line[4]) for line in lines("ls", out)] == [
        (file.path, "published", str(file.rows), str(file.batch_id)) for file in files
    ]
    listed = documents("ls", out)
    assert [each["path"] for each in listed] == [file.path for file in files]
    assert listed[0]["partition"] == {"month": "6"}
    assert len(documents("ls", out, "--version", 0)) == 2
    assert [line[0] for line in lines("ls", out, "-n", 1)] == [files[-1].path]
    assert documents("ls", out, "-n", 1)[0]["path"] == files[-1].path


def test_ls_lists_the_bounds_of_columns(out: str, store: str) -> None:
    file = ftfile.open(out).files(statistics=True)[0]
    assert file.statistics == {"id": ColumnBounds(0, 2, 0), "word": ColumnBounds("", "日本日本", 0)}
    listed = documents("ls", out, "--stats")[0]["statistics"]
    assert listed["word"] == {"low": "", "high": "日本日本", "nulls": 0}
    assert documents("ls", out)[0]["statistics"] is None
    heading, first, *_ = run("ls", out, "--stats").stdout.splitlines()
    assert heading.split("\t")[-1] == "bounds"
    assert first.split("\t")[-1] == "id: 0 … 2; word: '' … '日本日本'"
    assert "--stats: the runs of a store have no statistics" in run("ls", store, "--stats", code=2).stderr


@pytest.mark.slow
def test_a_terminal_gets_the_newest(out: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Only the newest entries are requested. `-n` requests that number of entries, and `--json` requests all."""
    asked: list[int | None] = []
    for name in ("files", "history"):
        real = getattr(OpenedDirectory, name)

        def note(*arguments: Any, real: Any = real, **options: Any) -> Any:
            asked.append(arguments[-1])
            return real(*arguments, **options)

        monkeypatch.setattr(OpenedDirectory, name, note)
    monkeypatch.setattr(output, "SHOWN", 2)
    monkeypatch.setattr(output, "is_terminal", lambda: True)
    newest = [file.path for file in ftfile.open(out).files(None, None)[-2:]]
    shown = run("ls", out)
    assert [line.split()[0] for line in shown.stdout.splitlines()[1:]] == newest
    assert "Only the newest 2 files" in shown.stderr
    assert [line.split()[0] for line in run("history", out).stdout.splitlines()[1:]] == ["1", "2"]
    assert "alone" not in run("history", out, "-n", 3).stderr
    assert len(documents("history", out)) == 3
    assert asked == [None, 3, 3, 3, None]
    assert "a number, 0 or more" in run("ls", out, "-n", -1, code=2).stderr


def test_ls_tells_what_is_missing(out: str) -> None:
    gone = ftfile.open(out).files()[0].path
    Path(out, gone).unlink()
    assert [line[1] for line in lines("ls", out) if line[0] == gone] == ["missing"]


@pytest.mark.slow
def test_history(out: str) -> None:
    ftfile.drop(out, "month = '7'")
    found = lines("history", out)
    assert [(line[0], line[2], line[3], line[4], line[6], line[7]) for line in found] == [
        ("0", "stream", "0", "4", "2", ""),
        ("1", "stream", "1", "4", "2", ""),
        ("2", "stream", "2", "4", "2", ""),
        ("3", "drop", "", "0", "0", "3"),
    ]
    assert found[0][1].endswith("Z")
    assert found[0][-1] == '{"batch":0}'
    assert [each["offsets"] for each in documents("history", out)] == [
        [{"batch": 0}],
        [{"batch": 1}],
        [{"batch": 2}],
        None,
    ]


@pytest.mark.slow
def test_why_files_ended_and_who_wrote_what(rolled: str, tmp_path: Path) -> None:
    ftfile.flush(rolled)
    heading, *_, last = run("history", rolled).stdout.splitlines()
    row = dict(zip(heading.split("\t"), last.split("\t"), strict=True))
    assert (row["operation"], row["finished by"]) == ("flush", "flush 2")
    assert "finished by\tflush 2\n" in run("show", rolled, 3).stdout
    options = {"fileFormat": "json", "userMetadata": "a night\trun"}
    MicroBatch(str(tmp_path / "noted"), {"id": "long"}, options).run(0, [[{"id": 1}]])
    assert "a night\\trun" in run("history", tmp_path / "noted").stdout
    assert documents("history", tmp_path / "noted")[0]["user_metadata"] == "a night\trun"


def test_the_history_of_a_store(store: str) -> None:
    assert [line[4] for line in lines("history", store)] == ["3", "3", "3"]


@pytest.mark.slow
def test_show_a_version(out: str) -> None:
    ftfile.drop(out, "month = '7'")
    text = run("show", out, 1).stdout
    assert 'offsets before\t{"batch":0}\noffsets after\t{"batch":1}\n' in text
    assert 'Read from the sources\nsource\tpartition\tfrom\tto\n0\t\t{"batch":0}\t{"batch":1}\n' in text
    assert '0\t\tits start\t{"batch":0}\n' in run("show", out, 0).stdout
    assert text.count(".json.gz\t2\t") == 2
    (found,) = documents("show", out, 1)
    assert found == {
        **found,
        "run_id": "run-1",
        "offsets_before": [{"batch": 0}],
        "offset_ranges": [{"source": 0, "partition": None, "start": {"batch": 0}, "end": {"batch": 1}}],
        "removed": [],
        "segments_removed": 0,
    }
    assert (found["commit"]["version"], found["commit"]["rows"], len(found["added"])) == (1, 4, 2)
    assert len(documents("show", out, 3)[0]["removed"]) == 3
    assert documents("show", out, 3)[0]["offset_ranges"] is None
    assert "Files removed: 3" in run("show", out, 3).stdout
    assert "the newest 3" in run("show", out, 99, code=2).stderr


def test_show_a_file(out: str) -> None:
    file = ftfile.open(out).files()[2]
    (found,) = documents("show", out, file.path)
    assert (found["version"], found["operation"], found["format"], found["filters"]) == (1, "stream", "json", ["gzip"])
    assert (found["rows"], found["size_bytes"], found["state"]) == (file.rows, file.size_bytes, "published")
    assert found["plain_bytes"] != found["size_bytes"]
    assert found["batches"] == {
        "query_id": QUERY,
        "first_batch": 1,
        "last_batch": 1,
        "offsets_before": [{"batch": 0}],
        "offsets": [{"batch": 1}],
        "offset_ranges": [{"source": 0, "partition": None, "start": {"batch": 0}, "end": {"batch": 1}}],
    }
    text = run("show", out, file.path).stdout
    assert "format\tjson + gzip\n" in text
    assert "batches\t1\n" in text
    assert "did you mean" in run("show", out, file.path[:-1], code=2).stderr


@pytest.mark.slow
def test_show_a_file_that_was_made_of_pieces(rolled: str) -> None:
    ftfile.flush(rolled)
    file = ftfile.open(rolled).files()[0]
    (found,) = documents("show", rolled, file.path)
    assert (found["operation"], found["version"], found["pieces"]) == ("flush", 3, 3)
    assert (found["batches"]["first_batch"], found["batches"]["last_batch"]) == (0, 2)
    assert "batches\t0 to 2\n" in run("show", rolled, file.path).stdout
    assert "Pieces of open files added: 2" in run("show", rolled, 0).stdout
    assert "pieces ended\t6\n" in run("show", rolled, 3).stdout


@pytest.mark.slow
def test_show_a_file_whose_record_is_gone_from_memory(tmp_path: Path) -> None:
    query = MicroBatch(str(tmp_path / "out"), {"id": "long"}, {"fileFormat": "json"})
    for batch in range(70):  # after these batches, ranges replace the records
        query.run(batch, [[{"id": batch}]])
    files = ftfile.open(query.path).files()
    for number in (0, 69):
        assert documents("show", query.path, files[number].path)[0]["version"] == number


@pytest.mark.parametrize(
    ("kind", "offset", "text"),
    [
        ("kafka", {"b": {"0": 5}, "a": {"10": 7, "9": 1350}}, "a: partition 9 at 1350, 10 at 7; b: partition 0 at 5"),
        ("kafka", {"kind": {"0": 5}}, "kind: partition 0 at 5"),
        ("ftfile", {"kind": "start"}, "its start"),
        ("ftfile", {"kind": "log", "version": -1, "nonce": ""}, "its start"),
        ("ftfile", {"kind": "log", "version": 12, "nonce": "n"}, "version 12"),
        ("ftfile", {"kind": "log", "version": 12, "nonce": "n", "next": 3}, "version 12, and 3 files of the next one"),
        ("ftfile", {"kind": "log", "snapshot": 12, "nonce": "n", "read": 1}, "1 file of version 12"),
        ("files", {"kind": "plans", "id": "a", "plan": 7, "nonce": "n"}, "plan 7"),
        ("other", {"logOffset": 7}, "logOffset 7"),
        ("other", 1_700_000_000, "1700000000"),
        ("other", {"shards": [{"id": 1}]}, '{"shards":[{"id":1}]}'),
        ("other", None, "null"),
    ],
)
def test_offsets_are_for_people(kind: str, offset: object, text: str) -> None:
    assert offset_text(kind, offset) == text


def test_nothing_was_committed_yet(tmp_path: Path) -> None:
    from ftfile.log.commit_log import CommitLog
    from ftfile.testing.context import open_filesystem

    CommitLog(open_filesystem(str(tmp_path))).prepare_directory()
    assert "nothing was committed yet" in run("status", tmp_path).stdout
    assert lines("ls", tmp_path) == lines("history", tmp_path) == []


def test_source(tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    (tmp_path / "in/a.log").write_text("one\ntwo\n")
    options = {"fileFormat": "text", "checkpointLocation": str(tmp_path / "checkpoint")}
    FilesRun(str(tmp_path / "in"), {"value": "string"}, options).run()
    (tmp_path / "in/b.log").write_text("three\n")
    os.utime(tmp_path / "in/b.log", (time.time() - 7200,) * 2)
    found = ("source", tmp_path / "in", "--checkpoint", tmp_path / "checkpoint", "-o", "fileFormat=text")
    text = run(*found).stdout
    assert "to be read\t1 file, 6 B, the oldest changed 2 h ago\n" in text
    assert documents(*found)[0][0]["files_behind"] == 1
    assert documents(*found[:4])[0][0]["files_behind"] == 1, "the state has the other options"
    assert "refused\t0\n" in text
    assert "No stream" in run("source", tmp_path / "in", "-o", "fileFormat=text", "--checkpoint", tmp_path / "x").stdout
    assert "NAME=VALUE" in run("source", tmp_path / "in", "-o", "fileFormat", code=2).stderr


def test_source_names_refused_files(monkeypatch: pytest.MonkeyPatch) -> None:
    refused = (Refused("in/b.log", "permission denied"),)
    status = SourceStatus("f" * 32, "file:///in/", 3, None, 1, (), refused, 0, (), 1, 2, None)
    monkeypatch.setattr(ftfile, "source_status", lambda *_, **__: (status,))
    text = run("source", "/in").stdout
    assert "refused\t1\n" in text
    assert "Refused: files that cannot be opened; the stream tries them again at growing intervals" in text
    assert "in/b.log\tpermission denied" in text
