"""The commands of `ftfile kv`."""

from __future__ import annotations

import datetime
import json
from pathlib import Path

import pytest

import ftfile
from ftfile.testing.micro_batch import StoreBatch
from tests.kit.parameters import parametrize
from tests.unit.tools.cli.running import documents, lines, run


@pytest.mark.slow
def test_get(store: str) -> None:
    assert documents("kv", "get", store, "b", "日本") == [{"word": "b", "n": 2}, {"word": "日本", "n": 2}]
    assert run("kv", "get", store, "a", "--version", 0).stdout == "word,n\na,0\n"
    result = run("kv", "get", store, "a", "nope", "--columns", "n", code=1)
    assert result.stdout == "word,n\na,2\n"
    assert "no key 'nope'" in result.stderr


@pytest.mark.slow
def test_scan(store: str) -> None:
    assert [row["word"] for row in documents("kv", "scan", store)] == ["a", "b", "日本"]
    assert [row["word"] for row in documents("kv", "scan", store, "--start", "b", "-n", 1)] == ["b"]
    assert run("kv", "scan", store, "--end", "b", "--columns", "n").stdout == "n\n2\n"
    assert "nope" in run("kv", "scan", store, "--columns", "nope", code=2).stderr


def test_keys_of_several_columns(tmp_path: Path) -> None:
    columns = {"country": "string", "day": "date", "n": "long"}
    store = StoreBatch(str(tmp_path / "store"), columns, {"keyColumns": "country,day"})
    days = [datetime.date(2024, 7, day) for day in (1, 2)]
    store.run(0, [[{"country": country, "day": day, "n": day.day} for country in ("at", "de") for day in days]])
    path = store.path
    assert documents("kv", "get", path, "de,2024-07-02") == [{"country": "de", "day": "2024-07-02", "n": 2}]
    assert len(documents("kv", "scan", path, "--start", "de")) == 2
    assert len(documents("kv", "scan", path, "--start", "at,2024-07-02")) == 3
    assert "columns country, day" in run("kv", "get", path, "de", code=2).stderr
    assert run("kv", "get", path, "de,today", code=2).stderr == "ftfile: 'today' is not a date for column day\n"
    assert "columns country, day" in run("kv", "get", path, "de,2024-07-02,1", code=2).stderr
    assert "as in CSV, or a JSON array" in run("kv", "get", path, '["de"', code=2).stderr
    assert "one line of CSV" in run("kv", "get", path, "", code=2).stderr
    assert "is not a date" in run("kv", "get", path, '["de", [1]]', code=2).stderr
    assert len(documents("kv", "scan", path, "--start", '["at", "2024-07-02"]')) == 3


@pytest.mark.slow
def test_keys_with_commas_and_quotes(tmp_path: Path) -> None:
    """A key is given in the CSV format that `kv scan` prints, or as a JSON array."""
    store = StoreBatch(str(tmp_path / "store"), {"a": "string", "b": "long", "n": "long"}, {"keyColumns": "a,b"})
    texts = ["x,y", 'x"y', "x\ny", "[x", "plain", '"']
    store.run(0, [[{"a": text, "b": 1, "n": number} for number, text in enumerate(texts)]])
    for number, text in enumerate(texts):
        quoted = '"' + text.replace('"', '""') + '"'
        for key in (f"{quoted},1", json.dumps([text, 1])):
            assert documents("kv", "get", store.path, key) == [{"a": text, "b": 1, "n": number}]


@pytest.mark.slow
def test_stats_verify_and_compact(store: str) -> None:
    assert "keys\tword string\n" in run("kv", "stats", store).stdout
    (stats,) = documents("kv", "stats", store)
    assert stats["runs"] == 9
    assert (stats["keys"], stats["values"], stats["merge"]) == ({"word": "string"}, {"n": "bigint"}, {})
    assert stats["buckets"] == ftfile.kv.open(store).definition.buckets
    assert run("kv", "verify", store).stdout == "Version 2: 9 runs with 9 rows, whole\n"
    assert run("kv", "compact", store).stdout == "Nothing to merge\n"
    assert run("kv", "compact", store, "--full", "--dry-run").stdout == "Would merge first 9 runs into about 3\n"
    assert documents("kv", "compact", store, "--full", "--dry-run")[0]["dry_run"] is True
    assert ftfile.kv.open(store).version == 2
    assert documents("kv", "compact", store, "--full", "--threads", 1)[0]["runs_written"] == 3
    run_file = next(each.add.path for each in ftfile.kv.open(store).runs())
    with Path(store, run_file).open("r+b") as file:
        file.seek(20)
        file.write(b"damaged")
    text = run("kv", "verify", store, code=1).stdout
    assert "damaged run" in text
    assert documents("kv", "verify", store, code=1)[0]["damaged"]
    assert run_file in text


@pytest.mark.slow
def test_commands_of_the_other_kind_say_where_to_go(store: str, out: str) -> None:
    for command in ("tail", "count", "schema", "flush", "compact"):
        assert "`ftfile kv" in run(command, store, code=2).stderr
    output = run("kv", "stats", out, code=2).stderr
    assert "directory of files" in output
    assert "use the commands without `kv`" in output
    assert lines("history", store)


@pytest.mark.slow
def test_commands_take_either_kind(store: str, tmp_path: Path) -> None:
    runs = [run.add for run in ftfile.kv.open(store).runs()]
    listed = documents("ls", store)
    assert sorted((line["path"], line["offset"], line["size_bytes"]) for line in listed) == sorted(
        (add.path, add.offset, add.length) for add in runs
    )
    assert [line["last_batch"] for line in listed] == sorted(add.origin.last_batch for add in runs)
    assert len(documents("ls", store, "--version", 0)) == 3
    assert documents("ls", store, "-n", 2) == listed[-2:]
    assert documents("ls", store, "-n", 0) == []
    assert lines("ls", store)[0][3:6] == ["1", str(listed[0]["size_bytes"]), "0"]
    assert run("cat", store).stdout == run("kv", "scan", store).stdout
    assert run("cat", store, "--version", 0, "--columns", "n").stdout == "n\n0\n0\n0\n"
    assert run("head", store, "-n", 1).stdout == "word,n\na,2\n"
    assert f"`ftfile kv get {store} KEY`" in run("cat", store, "--where", "n = 1", code=2).stderr
    assert "nope" in run("cat", store, "--columns", "nope", code=2).stderr
    (details,) = documents("show", store, 1)
    assert (len(details["added"]), details["segments_removed"]) == (3, 0)
    assert "Runs added: 3" in run("show", store, 1).stdout
    assert f"`ftfile ls {store}` lists the runs" in run("show", store, "nope", code=2).stderr
    assert "Wrote" in run("report", store, "-o", tmp_path / "page.html", "--no-verify").stderr


@parametrize(
    "words",
    ["status STORE", "ls STORE", "cat STORE", "show STORE 0", "verify STORE", "history STORE", "kv scan STORE"],
    quick=1,
)
def test_a_path_may_be_relative(store: str, words: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(Path(store).parent)
    assert run(*words.replace("STORE", Path(store).name).split()).stdout


@pytest.mark.slow
def test_the_log_of_a_store_is_verified(store: str) -> None:
    report = ftfile.verify(store)
    assert (report.kind, report.version, report.segments, report.ok) == ("store", 2, 9, True)
    assert str(report).startswith("well: version 2, 9 runs, 9 rows, content not read")
    assert "store\t" in run("verify", store).stdout
    file = next(each.add.path for each in ftfile.kv.open(store).runs())
    with Path(store, file).open("r+b") as stream:
        stream.seek(20)
        stream.write(b"damaged")
    assert documents("verify", store)[0]["findings"] == []
    damaged = {each["code"] for each in documents("verify", store, "--full", code=1)[0]["findings"]}
    assert damaged == {"damaged-segment"}


def test_the_status_of_a_store(store: str) -> None:
    (status,) = documents("status", store)
    assert (status["kind"], status["version"], status["open"]) == ("store", 2, [])
    text = run("status", store).stdout
    assert text.startswith("verdict\twell: version 2, ")
    assert "compactions due\t0\n" in text
    assert "open files" not in text
