"""The commands `status`, `ls`, `history`, `show`, `diff`, `schema`, `report` and `source`."""

from __future__ import annotations

import datetime
import os
import re
import time
from pathlib import Path
from typing import Any

import pytest

import ftfile
from ftfile.log.format import layout
from ftfile.operate.open_directory import OpenedDirectory
from ftfile.read.file_bounds import ColumnBounds
from ftfile.source.plan import Refused
from ftfile.source.status import SourceStatus
from ftfile.testing.micro_batch import MicroBatch
from ftfile.testing.source_run import SourceRun
from ftfile.tools.cli import output
from ftfile.tools.report.views import offset_text
from tests.kit.files_run import FilesRun
from tests.unit.tools.cli.running import documents, lines, run
from tests.unit.writing.files.encrypted import ring

QUERY = "00000000-0000-0000-0000-000000000001"

__all__ = ("ring",)


@pytest.mark.slow
def test_status(out: str, rolled: str) -> None:
    text = run("status", out).stdout
    assert "version\t2, committed " in text
    assert f"{QUERY}\t2\t2\t" in text
    text = run("status", rolled).stdout
    assert "open files\t2\n" in text
    assert "UTC by rolloverInterval, or 1,000 segments" in text
    assert "\tin 60 min\t" in text
    (found,) = documents("status", rolled)
    assert [each["directory"] for each in found["open"]] == ["month=6", "month=7"]
    assert found["queries"][0]["last_batch"] == 2


@pytest.mark.slow
def test_status_tells_why_a_file_is_not_published(query: MicroBatch) -> None:
    query.run(3, [[{"id": 1, "month": "9", "word": "x"}]])
    directory = ftfile.open(query.path)
    file = directory.files()[-1].path
    # The process died before it published the file: the file is staged, and a foreign file has its name.
    staged = next(add for add in directory.snapshot().adds.values() if add.final_path == file)
    Path(query.path, staged.path).parent.mkdir(parents=True, exist_ok=True)
    Path(query.path, file).rename(Path(query.path, staged.path))
    Path(query.path, file).write_text("mine")
    Path(query.path, layout.PUBLISHED_HINT).unlink()
    text = run("status", query.path).stdout
    assert "not published\t1, 1 of them stuck" in text
    assert "a foreign file of 4 bytes" in text
    assert documents("ls", query.path)[-1]["state"] == "pending"


@pytest.mark.slow
def test_status_tells_how_far_a_query_is_behind(query: MicroBatch, tmp_path: Path) -> None:
    text = run("status", query.path).stdout
    assert re.search(rf"^{QUERY}\t2\t2\t\d\.\d s ago\tno batch\tfile://{query.checkpoint}\t\t$", text, re.MULTILINE)
    about = f'{{"batchTimestampMs": {time.time_ns() // 1_000_000 - 600_000}}}'
    Path(str(query.checkpoint), "offsets/3").write_text(f'v1\n{about}\n{{"t":{{"0":7}}}}\n{{"t":{{"0":8}}}}\n')
    text = run("status", query.path).stdout
    assert "\t3, for 10 min\t" in text
    assert "\t0\tkafka\tnot known\t\tt: partition 0 at 7\n" in text
    assert text.count("kafka: only Kafka has the newest offsets") == 1
    (found,) = documents("status", query.path)
    assert found["queries"][0]["checkpoint"]["sources"][0]["offset"] == {"t": {"0": 7}}
    assert (found["queries"][0]["checkpoint"]["planned_batch"], found["queries"][0]["last_batch"]) == (3, 2)
    assert "under way" in run("status", query.path, "--no-lag").stdout
    assert "no batch" not in run("status", query.path, "--no-lag").stdout
    Path(str(query.checkpoint)).rename(tmp_path / "moved")
    result = run("status", query.path)
    assert (
        f"\ninfo checkpoint-unread: file://{query.checkpoint}\nexpected\tthe checkpoint of query {QUERY}\n"
        in result.stdout
    )
    assert "\t3, for 10 min\t" in run("status", query.path, "--checkpoint", tmp_path / "moved").stdout
    assert "not a readable checkpoint" in run("status", query.path, "--checkpoint", tmp_path / "nowhere", code=2).stderr


@pytest.mark.slow
def test_status_counts_what_sources_have_left(query: MicroBatch, tmp_path: Path) -> None:
    """For files and for followed directories; the output names the source as the command line does."""
    (tmp_path / "in").mkdir()
    (tmp_path / "in/a.log").write_text("one\n")
    options = {"fileFormat": "text", "checkpointLocation": str(query.checkpoint)}
    files = FilesRun(str(tmp_path / "in"), {"value": "string"}, options)
    files.run()
    followed = MicroBatch(str(tmp_path / "followed"), {"id": "long"}, {"fileFormat": "json"})
    followed.run(0, [[{"id": 1}]])
    source = SourceRun(followed.path, {"id": "long"})
    source.run()
    text = "\n".join(["v1", "{}", files.offsets[-1], source.offsets[-1]])
    Path(str(query.checkpoint), "offsets/3").write_text(text)
    (tmp_path / "in/b.log").write_text("three\n")
    os.utime(tmp_path / "in/b.log", (time.time() - 7200,) * 2)
    followed.run(1, [[{"id": 1}]])
    text = run("status", query.path).stdout
    assert f"\t0\tfiles\t1 file of 6 B, the oldest changed 2 h ago\tfile://{tmp_path}/in\t" in text
    assert (
        "ftfile: a checkpoint does not name the directory that the query follows: give it with --source PATH\n" in text
    )
    text = run("status", query.path, "--source", followed.path).stdout
    assert f"\t1\tftfile\t1 version\tfile://{followed.path}\t" in text


@pytest.mark.slow
def test_status_counts_orphans_when_asked(rolled: str) -> None:
    assert "not needed" not in run("status", rolled).stdout
    assert documents("status", rolled)[0]["unneeded_files"] is None
    assert documents("status", rolled, "--staged")[0]["unneeded_files"] == 0, (
        "all of these files have rows of open files"
    )
    Path(rolled, layout.STAGED, "lost").write_bytes(b"12345")
    assert "not needed\t1 staged file of 5 B: " in run("status", rolled, "--staged").stdout
    ftfile.flush(rolled)
    (found,) = documents("status", rolled, "--staged")
    assert found["unneeded_files"] == 4
    assert found["unneeded_bytes"] > 5


@pytest.mark.slow
def test_status_of_a_directory_whose_log_is_lost(out: str) -> None:
    for record in Path(out, layout.LOG).iterdir():
        record.unlink()
    assert "no readable version" in run("status", out, code=4).stdout
    (found,) = documents("status", out, code=4)
    assert [each["code"] for each in found["findings"]] == ["lost-records"]


@pytest.mark.slow
def test_report_to_stdout_is_the_page_alone(out: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    before = {*tmp_path.iterdir()}
    page = run("report", out, "-o", "-", "--no-verify").stdout
    assert page.startswith("<!doctype html>")
    assert page.rstrip().endswith("</html>")
    assert {*tmp_path.iterdir()} == before
    assert "use only one of them" in run("report", out, "-o", "-", "--json", code=2).stderr


@pytest.mark.slow
def test_status_tells_the_oldest_version_that_can_be_read(query: MicroBatch) -> None:
    ftfile.compact(query.path)
    status = run("status", query.path).stdout
    assert "oldest version\t0\n" in status
    ftfile.expire(query.path, older_than="0s", force=True, dry_run=False)
    found = ftfile.open(query.path)
    assert (found.oldest_version(), found.status().oldest_version) == (3, 0)
    status = run("status", query.path).stdout
    assert "oldest version\t3 can be read; the log has records from 0 on\n" in status


@pytest.mark.slow
def test_report_says_remedies_as_commands(out: str, tmp_path: Path) -> None:
    gone = ftfile.open(out).files()[0].path
    Path(out, gone).unlink()
    text = run("report", out, "-o", tmp_path / "report.html").stdout
    assert f"`ftfile repair {out} --give-up {gone}`" in text
    assert "ftfile.repair(" not in text


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
def test_show_a_file_that_was_made_of_segments(rolled: str) -> None:
    ftfile.flush(rolled)
    file = ftfile.open(rolled).files()[0]
    (found,) = documents("show", rolled, file.path)
    assert (found["operation"], found["version"], found["segments"]) == ("flush", 3, 3)
    assert (found["batches"]["first_batch"], found["batches"]["last_batch"]) == (0, 2)
    assert "batches\t0 to 2\n" in run("show", rolled, file.path).stdout
    assert "Pieces of open files added: 2" in run("show", rolled, 0).stdout
    assert "segments ended\t6\n" in run("show", rolled, 3).stdout


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


def test_schema(tmp_path: Path) -> None:
    out = str(tmp_path / "out")
    inner = {"name": "x y", "type": {"type": "array", "elementType": "decimal(9,2)", "containsNull": True}}
    struct = {"type": "struct", "fields": [{**inner, "nullable": True, "metadata": {}}]}
    columns = {"id": "long", "a `b`,c": struct, "at": "timestamp_ntz", "day": "date"}
    query = MicroBatch(out, columns, {"fileFormat": "parquet", "partitionBy": "day"})
    query.run(0, [[{"id": 1, "a `b`,c": None, "at": None, "day": datetime.date(2024, 7, 1)}]])
    assert lines("schema", out)[:4] == [
        ["id", "bigint", "yes"],
        ["a `b`,c", "struct<`x y`:array<decimal(9,2)>>", "yes"],
        ["at", "timestamp_ntz", "yes"],
        ["day", "date", "yes"],
    ]
    (document,) = documents("schema", out)
    assert document["columns"][0] == {"name": "id", "type": "bigint", "nullable": True}
    ddl = "`id` bigint, `a ``b``,c` struct<`x y`:array<decimal(9,2)>>, `at` timestamp_ntz, `day` date"
    assert document["ddl"] == ddl
    assert run("schema", out).stdout.endswith(f"\nAs text\n{ddl}\n")
    assert "there is no version 3" in run("schema", out, "--version", 3, code=2).stderr


def test_schema_of_an_older_version(query: MicroBatch) -> None:
    wider = MicroBatch(query.path, {"id": "long", "month": "string", "n": "date"}, query.options, overwrite=True)
    wider.run_batch_write("7" * 32, [[{"id": 7, "month": "7", "n": None}]])
    assert [column["name"] for column in documents("schema", query.path)[0]["columns"]] == ["id", "month", "n"]
    older = ftfile.open(query.path).schema(2)
    assert (older.version, [column.name for column in older.columns]) == (2, ["id", "month", "word"])


@pytest.mark.slow
def test_diff(query: MicroBatch, store: str) -> None:
    ftfile.delete(query.path, "month = '6' AND id >= 10")
    (changes,) = documents("diff", query.path, 1, 3)
    assert (changes["rows_added"], changes["rows_removed"]) == (2, 2)
    assert [file["path"] for file in changes["removed"]] == [
        file.path for file in ftfile.open(query.path).files(1) if file.batch_id == 1 and file.directory == "month=6"
    ]
    text = run("diff", query.path, "0").stdout
    assert text.startswith("versions\t0 to 3\nrows\t4 added, 0 removed\nfiles\t2 files of ")
    assert "Files removed" not in text
    assert "\nColumns" not in text
    assert "there is no version 9" in run("diff", query.path, 9, code=2).stderr
    assert "is not an ISO 8601 time" in run("diff", query.path, 0, "yesterday", code=2).stderr
    assert "ftfile.kv.changes returns the keys" in run("diff", store, 0, code=2).stderr


def test_diff_of_columns(query: MicroBatch) -> None:
    wider = MicroBatch(query.path, {"id": "long", "month": "string", "n": "date"}, query.options, overwrite=True)
    wider.run_batch_write("7" * 32, [[{"id": 7, "month": "7", "n": None}]])
    text = run("diff", query.path, 2, 3).stdout
    assert "Columns changed: 2\ncolumn\twas\tis\nn\t\tdate\nword\tstring\t\n" in text
