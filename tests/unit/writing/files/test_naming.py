"""Names of files; none is used twice."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import ftfile
from ftfile.core import extensions
from ftfile.core.codecs import READERS_ENDINGS
from ftfile.core.errors import ConfigError, EncodingError, NameCollision, UserCodeError
from ftfile.log import apply as fold
from ftfile.testing.checker import check_directory
from ftfile.testing.context import ManualClock, current, open_filesystem, repeatable
from ftfile.testing.micro_batch import MicroBatch, spark_schema
from ftfile.writing.files.file_options import SinkConfig
from ftfile.writing.files.prepared_files import PreparedFiles
from ftfile.writing.messages import author_of, check_messages
from tests.unit.filters.filters_of_users import Cipher

COLUMNS = {"id": "long", "word": "string"}
USER_CODE = "tests.unit.writing.files.user_code"
UNIQUE = "[0-9a-f]{12}"


@pytest.fixture
def out(tmp_path: Path) -> str:
    return str(tmp_path / "out")


def query(out: str, **options: str) -> MicroBatch:
    return MicroBatch(out, COLUMNS, {"fileFormat": "json", **options})


def rows(*words: str) -> list[dict[str, Any]]:
    return [{"id": number, "word": word} for number, word in enumerate(words)]


def visible(out: str) -> list[str]:
    files = (file.relative_to(out) for file in Path(out).rglob("*") if file.is_file())
    return sorted(str(file) for file in files if "_ftfile" not in file.parts)


def count(out: str) -> int:
    return int(ftfile.open(out).to_arrow().num_rows)


def assert_named(out: str, *patterns: str) -> None:
    found = visible(out)
    assert len(found) == len(patterns), found
    for name, pattern in zip(found, patterns, strict=True):
        assert re.fullmatch(pattern, name), name
    check_directory(open_filesystem(out))


def config(**options: str) -> SinkConfig:
    return SinkConfig.from_options({"path": "/x", "fileFormat": "json", **options}, spark_schema(COLUMNS))


class TestTemplates:
    def test_the_default(self, out: str) -> None:
        query(out).run(0, [rows("a"), rows("b")])
        assert_named(out, rf"part-0{{10}}-00000-{UNIQUE}\.json", rf"part-0{{10}}-00001-{UNIQUE}\.json")

    def test_prefix_and_suffix(self, out: str) -> None:
        query(out, partPrefix="events", partSuffix=".{x}").run(0, [rows("a")])
        assert_named(out, rf"events-0{{10}}-00000-{UNIQUE}\.\{{x\}}\.json")

    def test_a_column_of_names_begins_them(self, out: str) -> None:
        query(out, fileNameColumn="word").run(0, [rows("x/a", "b")])
        assert_named(out, rf"b-0{{10}}-00000-{UNIQUE}\.json", rf"x/a-0{{10}}-00000-{UNIQUE}\.json")

    def test_every_placeholder(self, out: str) -> None:
        clock = ManualClock(1_700_000_000_000)  # 2023-11-14T22:13:20Z
        template = "{name}~{directory}~{batch:3}~{index:2}~{number}~{time:yyyyMMdd-HHmm}~{unique}{ext}"
        with repeatable(clock):
            options = {"partFileName": template, "partitionBy": "word", "timeZone": "Asia/Tokyo"}
            query(out, **options).run(0, [rows("a", "b")])
        assert_named(
            out,
            rf"word=a/part~word=a~000~00~0~20231115-0713~{UNIQUE}\.json",
            rf"word=b/part~word=b~000~00~0~20231115-0713~{UNIQUE}\.json",
        )

    def test_batch_writes_have_letters_for_a_batch(self, out: str) -> None:
        query(out, partFileName="{batch}-{unique}{ext}").run_batch_write("ab" * 16, [rows("a")])
        assert_named(out, rf"wabababababab-{UNIQUE}\.json")

    @pytest.mark.parametrize(
        ("template", "pattern"),
        [
            ("{name}{ext}", rf"part-{UNIQUE}\.json"),
            ("data.log", rf"data-{UNIQUE}\.log"),
            ("data", rf"data-{UNIQUE}"),
            ("{batch}", rf"0{{10}}-{UNIQUE}"),
            ("{batch}.{index}", rf"0{{10}}\.00000-{UNIQUE}"),
            ("{unique}", UNIQUE),
            ("{{x}}-{index:2}{{.y}}", rf"\{{x\}}-00\{{\.y\}}-{UNIQUE}"),
        ],
    )
    def test_what_could_repeat_gets_something_unique(self, out: str, template: str, pattern: str) -> None:
        query(out, partFileName=template).run(0, [rows("a")])
        assert_named(out, pattern)

    @pytest.mark.parametrize(
        ("options", "text"),
        [
            (
                {"partFileName": "{nosuch}"},
                "'{nosuch}' is not a known field; accepted are {name}, {directory}, {unique}",
            ),
            ({"partFileName": "{name"}, "partFileName='{name': expected '}' before end of string; accepted are {name}"),
            ({"partFileName": "{name}}"}, "Single '}' encountered in format string"),
            ({"partFileName": "{name!r}"}, "'{name!r}' is not a known field"),
            ({"partFileName": "{name.x}"}, "'{name.x}' is not a known field"),
            ({"partFileName": "{}"}, "'{}' is not a known field"),
            ({"partFileName": "{index:{number}}"}, "'{index:{number}}' is not a known field"),
            ({"partFileName": "{name:3}"}, "'{name:3}' is not a known field"),
            ({"partFileName": "{index:0}"}, "'{index:0}' is not a known field"),
            ({"partFileName": "{time}"}, "'{time}' is not a known field"),
            ({"partFileName": "{time:QQ}"}, "option partFileName with time='QQ': 'QQ' is not understood"),
            ({"partFileName": "{time:HH:mm}"}, "has the character ':'"),
            ({"partFileName": ""}, "partFileName is empty"),
            ({"partFileName": "_{unique}{ext}"}, "which has the part '_"),
            ({"partFileName": ".{unique}"}, "which readers ignore"),
            ({"partFileName": "../{unique}"}, "has a slash, but only rows choose directories"),
            ({"partFileName": "{time:yyyy/MM}-{unique}"}, "has a slash"),
            ({"partFileName": "a\0{unique}"}, r"has the character '\x00'"),
            ({"partFileName": "x" * 260}, "but a part may have at most 255"),
            ({"partPrefix": "_x"}, "which readers ignore"),
            ({"partPrefix": "a/b"}, "has a slash"),
            ({"partSuffix": "/b"}, "has a slash"),
            ({"partPrefix": "x", "partFileName": "{name}"}, "partFileName and partPrefix are both set"),
            ({"partSuffix": "x", "partFileName": "{name}"}, "write the suffix into partFileName"),
            ({"partPrefix": "x", "fileNameColumn": "word"}, "partFileName='x{name}-{batch}-{index}-{unique}{ext}'"),
            ({"directoryStateTtl": "1h"}, "directoryStateTtl is only for names with {number}"),
            ({"ifExists": "fail"}, "set a partFileName without {unique}"),
            ({"ifExists": "fail", "partFileName": "{unique}"}, "set a partFileName without {unique}"),
        ],
    )
    def test_what_is_refused_at_the_start(self, options: dict[str, str], text: str) -> None:
        with pytest.raises(ConfigError, match=re.escape(text)):
            config(**options)

    @pytest.mark.parametrize("ending", [*sorted(READERS_ENDINGS), ".LZ4"])
    def test_endings_that_readers_decompress_by(self, ending: str, monkeypatch: pytest.MonkeyPatch) -> None:
        told = re.escape(f"would end in {ending!r}: readers would decompress")
        for template in (f"{{batch}}{{unique}}{ending}", f"x{ending}"):
            with pytest.raises(ConfigError, match=rf"partFileName returns the name .*{told}"):
                config(partFileName=template)
        with pytest.raises(ConfigError, match=f"files {told}"):
            config(partFileName="x{ext}", fileFormat="binary", encoder=f"{USER_CODE}:Ending", **{"encoder.is": ending})
        monkeypatch.setattr(
            extensions, "list_installed", lambda _: {"cipher": f"{Cipher.__module__}:{Cipher.__name__}"}
        )
        monkeypatch.setattr(Cipher, "extension", ending)
        with pytest.raises(ConfigError, match=f"files {told}"):
            config(filters="cipher")

    def test_endings_of_the_codec(self, monkeypatch: pytest.MonkeyPatch) -> None:
        for name in ("{batch}.gz", "x.{unique}.json.GZ", "x", "{unique}{ext}", "lz4", "x.lz4.txt", "x.lz4f"):
            config(compression="gzip", partFileName=name)
        with pytest.raises(ConfigError, match=r"would end in '\.lz4': readers would"):
            config(compression="gzip", partFileName="{batch}.lz4")
        with pytest.raises(ConfigError, match=r"would end in '\.lz4': readers would"):
            config(compression="lz4frame", partFileName="{batch}.lz4")
        lz4 = {"fileFormat": "binary", "encoder": f"{USER_CODE}:Ending", "encoder.is": ".lz4"}
        config(**lz4, compression="gzip")
        config(**lz4, compression="lz4")
        monkeypatch.setattr(
            extensions, "list_installed", lambda _: {"cipher": f"{Cipher.__module__}:{Cipher.__name__}"}
        )
        config(**lz4, filters="cipher")
        with pytest.raises(ConfigError, match=r"would end in '\.gz': readers would"):
            config(compression="gzip", filters="cipher", partFileName="{batch}.gz")

    def test_a_directory_that_makes_the_name_too_long(self, out: str) -> None:
        long = query(out, partFileName="{directory}-{unique}", partitionBy="word")
        with pytest.raises(EncodingError, match="and 255 are allowed"):
            long.run(0, [rows("x" * 240)])
        assert visible(out) == []
        long.run(0, [rows("x")])
        assert count(out) == 1


class TestFunctions:
    def test_name_parts_and_get_something_unique_if_it_is_missing(self, out: str) -> None:
        query(out, partFileName=f"{USER_CODE}:by_rows").run(0, [rows("a", "b")])
        assert_named(out, rf"part_0{{10}}_2rows-{UNIQUE}\.json")

    def test_their_names_are_kept_where_they_are_checked(self, out: str) -> None:
        query(out, partFileName=f"{USER_CODE}:by_rows", ifExists="fail").run(0, [rows("a", "b")])
        assert_named(out, r"part_0{10}_2rows\.json")

    def test_an_ending_of_their_own(self, out: str) -> None:
        query(out, partFileName=f"{USER_CODE}:always_the_same").run(0, [rows("a"), rows("b")])
        assert_named(out, *[rf"only-{UNIQUE}\.log"] * 2)

    def test_numbers_go_on(self, out: str) -> None:
        counting = query(out, partFileName=f"{USER_CODE}:numbered", ifExists="fail")
        for batch in range(3):
            counting.run(batch, [rows("a")])
        assert_named(out, r"part\.0", r"part\.1", r"part\.2")

    @pytest.mark.parametrize(
        ("name", "text"),
        [
            ("nosuch", "cannot be loaded: AttributeError"),
            ("failing", "failing' raised KeyError('x')"),
            ("no_text", "returned 1 for PartFacts("),
            ("with_slash", "has a slash"),
        ],
    )
    def test_are_tried_at_the_start(self, name: str, text: str) -> None:
        with pytest.raises(ConfigError, match=re.escape(text)):
            config(partFileName=f"{USER_CODE}:{name}")

    @pytest.mark.parametrize(
        ("name", "text"), [("failing_later", "KeyError('late')"), ("hidden_later", "_hidden"), ("lz4_later", "'.lz4'")]
    )
    def test_that_fail_commit_nothing(self, out: str, name: str, text: str) -> None:
        with pytest.raises(UserCodeError, match=re.escape(text)):
            query(out, partFileName=f"{USER_CODE}:{name}").run(0, [rows("a")])
        query(out).run(0, [rows("a")])
        assert count(out) == 1


class TestNumbers:
    TEMPLATE = "{name}.{number}"

    def test_go_on_over_batches_and_restarts_for_each_directory(self, out: str) -> None:
        counting = query(out, partFileName=self.TEMPLATE, ifExists="fail", fileNameColumn="word")
        counting.run(0, [rows("a", "b"), rows("a")])
        counting.restart()
        counting.run(1, [rows("b")])
        counting.run(2, [rows("a", "c")])
        assert visible(out) == ["a.0", "a.1", "a.2", "b.0", "b.1", "c.0"]
        check_directory(open_filesystem(out))

    def test_are_shared_by_queries(self, out: str) -> None:
        for number, query_id in enumerate(["one", "two"]):
            options = {"partFileName": self.TEMPLATE, "ifExists": "fail", "onNewQuery": "continue"}
            counting = replace(query(out, **options), query_id=query_id)
            counting.run(0, [rows("a")])
            assert visible(out)[-1] == f"part.{number}"

    @pytest.mark.slow
    def test_survive_in_checkpoints(self, out: str, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr("ftfile.log.checkpoints.CHECKPOINT_MIN_BYTES", 0)
        counting = query(out, partFileName=self.TEMPLATE, ifExists="fail")
        for batch in range(4):
            counting.run(batch, [rows("a")])
            counting.restart()
        assert visible(out) == [f"part.{number}" for number in range(4)]
        check_directory(open_filesystem(out))

    def test_begin_again_when_a_directory_is_forgotten(self, out: str) -> None:
        clock = ManualClock()
        with repeatable(clock):
            counting = query(
                out, partFileName=f"{self.TEMPLATE}-{{unique}}", directoryStateTtl="1h", partitionBy="word"
            )
            counting.run(0, [rows("a", "b")])
            clock.advance(3000)
            counting.run(1, [rows("b")])
            clock.advance(3000)
            counting.run(2, [rows("a", "b")])
        names = [re.sub(UNIQUE, "", name) for name in visible(out)]
        assert names == ["word=a/part.0-", "word=a/part.0-", "word=b/part.0-", "word=b/part.1-", "word=b/part.2-"]

    @pytest.mark.slow
    def test_are_remembered_for_so_many_directories_only(self, out: str, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(fold, "ENTRIES_MAX", 3)
        counting = query(out, partFileName="{number}-{unique}", partitionBy="word")
        for batch, words in enumerate(["abc", "a", "d", "abcd"]):
            counting.run(batch, [rows(*words)])
        assert len(counting.config().log(current()).refresh().tables["partNumbers"]) == 3
        found = sorted(name[: len("word=a/0")] for name in visible(out))
        assert found == [f"word={name}" for name in ("a/0", "a/1", "a/2", "b/0", "b/0", "c/0", "c/1", "d/0", "d/1")]

    def test_of_which_names_do_not_speak_are_not_in_the_log(self, out: str) -> None:
        query(out, partitionBy="word").run(0, [rows("a")])
        assert query(out).config().log(current()).refresh().tables == {}


FIXED = {"partFileName": "{name}-{index:1}{ext}", "ifExists": "fail"}


class TestFilesThatStayOpen:
    """They are named when they are finished: in a later batch, or by a flush."""

    @pytest.mark.slow
    def test_by_the_same_rules(self, out: str) -> None:
        options = {"rolling": "policy", "maxBatchesPerFile": "2", "fileNameColumn": "word"}
        stream = query(out, partFileName="{name}_{number}{ext}", ifExists="fail", **options)
        for batch in range(5):
            stream.run(batch, [rows("a", "x/b")])
        assert visible(out) == ["a_0.json", "a_1.json", "x/b_0.json", "x/b_1.json"]
        ftfile.flush(out, context=current())
        assert visible(out) == ["a_0.json", "a_1.json", "a_2.json", "x/b_0.json", "x/b_1.json", "x/b_2.json"]
        stream.run(5, [rows("a")])
        ftfile.flush(out, context=current())
        assert visible(out)[3] == "a_3.json"
        assert count(out) == 11
        assert {row["word"] for row in ftfile.open(out).to_arrow().to_pylist()} == {"a", "x/b"}
        check_directory(open_filesystem(out))

    def test_by_a_function(self, out: str) -> None:
        options = {"rolling": "policy", "partFileName": f"{USER_CODE}:by_rows", "ifExists": "fail"}
        stream = query(out, **options)
        stream.run(0, [rows("a"), rows("b")])
        stream.run(1, [rows("c")])
        ftfile.flush(out, code=[f"{USER_CODE}:by_rows"], context=current())
        assert visible(out) == ["part_0000000001_3rows.json"]

    def test_by_default(self, out: str) -> None:
        stream = query(out, rolling="policy", maxBatchesPerFile="1")
        stream.run(0, [rows("a")])
        stream.run(1, [rows("b")])
        ftfile.flush(out, context=current())
        assert_named(out, rf"part-0{{9}}1-00000-{UNIQUE}\.json", rf"part-0{{9}}1-50000-{UNIQUE}\.json")

    @pytest.mark.slow
    def test_whose_name_is_taken_stay_open_and_fail_no_batch(self, out: str, caplog: pytest.LogCaptureFixture) -> None:
        options = {"rolling": "policy", "maxBatchesPerFile": "1", "partFileName": "{name}{ext}", "ifExists": "fail"}
        stream = query(out, **options)
        for batch in range(3):
            stream.run(batch, [rows("a")])
        assert "its rows stay in their files: 'part.json' is taken" in caplog.text
        assert visible(out) == ["part.json"]
        assert count(out) == 3
        with pytest.raises(NameCollision, match="is taken"):
            ftfile.flush(out, context=current())
        stream.options = {"fileFormat": "json", "rolling": "policy", "maxBatchesPerFile": "1"}
        stream.run(3, [[]])
        ftfile.flush(out, context=current())
        assert sum(file.rows for file in ftfile.open(out).files()) == 3
        check_directory(open_filesystem(out))

    @pytest.mark.slow
    def test_whose_name_is_taken_get_the_next_number(self, out: str) -> None:
        options = {"rolling": "policy", "maxBytesPerFile": "1", "partFileName": "{name}.{number}", "ifExists": "fail"}
        stream = query(out, **options)
        Path(out).mkdir()
        Path(out, "part.0").touch()
        for batch in range(4):
            stream.run(batch, [rows("a", "b")])
        ftfile.flush(out, context=current())
        found = visible(out)
        assert found[0] == "part.0"
        assert Path(out, "part.0").read_text() == ""
        Path(out, "part.0").unlink()
        assert sorted(json.loads(Path(out, name).read_text())["id"] for name in found[1:]) == [0] * 4 + [1] * 4
        assert count(out) == 8
        check_directory(open_filesystem(out))


class TestNamesThatAreTaken:
    def refused(self, out: str, batch: int, text: str, *words: str, **options: str) -> None:
        before = visible(out)
        failing = query(out, **FIXED, **options)
        with pytest.raises(NameCollision, match=re.escape(text)):
            failing.run(batch, [rows(*words)])
        assert visible(out) == before
        check_directory(open_filesystem(out))

    def test_by_an_earlier_batch(self, out: str) -> None:
        query(out, **FIXED).run(0, [rows("a")])
        self.refused(out, 1, "'part-0.json' is taken: a file of that name exists. Nothing was committed", "b")
        query(out).run(1, [rows("b")])
        assert count(out) == 2

    def test_by_another_program(self, out: str) -> None:
        Path(out).mkdir()
        Path(out, "part-0.json").write_text("{}")
        failing = query(out, **FIXED)
        with pytest.raises(NameCollision, match="is taken"):
            failing.run(0, [rows("a")])
        Path(out, "part-0.json").unlink()
        failing.run(0, [rows("a")])
        assert_named(out, r"part-0\.json")
        assert count(out) == 1

    def test_within_a_batch(self, out: str) -> None:
        failing = query(out, partFileName="{name}{ext}", ifExists="fail")
        with pytest.raises(NameCollision, match="another part of this batch has this name"):
            failing.run(0, [rows("a"), rows("b")])
        failing.run(0, [rows("a", "b")])
        assert_named(out, r"part\.json")

    def test_by_a_directory(self, out: str) -> None:
        failing = query(out, partFileName="{name}", ifExists="fail", fileNameColumn="word")
        with pytest.raises(NameCollision, match="'a' is taken: a directory is needed"):
            failing.run(0, [rows("a", "a/b")])
        with pytest.raises(NameCollision, match="'a' is taken: it is also the name of a directory of this batch"):
            failing.run(0, [rows("a/b", "a")])
        failing.run(0, [rows("a")])
        with pytest.raises(NameCollision, match="'a' is taken: a directory is needed"):
            failing.run(1, [rows("a/b/c")])
        failing.run(1, [rows("x/y")])
        with pytest.raises(NameCollision, match="'x' is taken: a file of that name exists"):
            failing.run(2, [rows("x")])
        assert visible(out) == ["a", "x/y"]

    def test_by_a_part_that_is_not_published_yet(self, out: str, monkeypatch: pytest.MonkeyPatch) -> None:
        first = query(out, **FIXED)
        with monkeypatch.context() as patched:
            patched.setattr("ftfile.log.protocol.roll_forward", lambda *_, **__: [])
            first.run(0, [rows("a")])
            assert visible(out) == []
            second = replace(query(out, **FIXED, onNewQuery="continue"), query_id="another")
            with pytest.raises(NameCollision, match="is taken"):
                second.run(0, [rows("b")])
        first.run(1, [[]])
        assert visible(out) == ["part-0.json"]

    def test_by_a_part_that_was_removed(self, out: str) -> None:
        """A process that retires the old part late would take the new one away."""
        from ftfile.log.protocol import commit

        first = query(out, **FIXED)
        first.run(0, [rows("a")])
        settings = first.config()
        messages = check_messages(first.run_tasks(1, [[]]), 1)
        log = settings.log(current())
        author = author_of(messages[0].identity.writer, None, None, current())
        prepared = PreparedFiles(replace(settings, overwrite=True), author, messages, log)
        commit(log, author, prepared.body, settings.common.policy)
        assert visible(out) == []
        self.refused(out, 2, "it was the name of a part that version 1 removed", "b")

    def test_a_replay_finds_its_own_files_and_is_none_the_worse(self, out: str) -> None:
        first = query(out, **FIXED)
        first.run(0, [rows("a")])
        first.restart()
        assert first.run(0, [rows("a")]).replayed

    def test_a_batch_that_lost_its_version_looks_again(self, out: str, monkeypatch: pytest.MonkeyPatch) -> None:
        """Between the look and the record another query commits a file of the same name."""
        from ftfile.log.commit_log import CommitLog

        create = CommitLog.create
        tried: list[Any] = []

        def create_later(log: CommitLog, record: Any) -> Any:
            if not tried:
                tried.append(record)
                other = replace(query(out, **FIXED, onNewQuery="continue"), query_id="another")
                other.run(0, [rows("b")])
            return create(log, record)

        monkeypatch.setattr(CommitLog, "create", create_later)
        with pytest.raises(NameCollision, match="is taken"):
            query(out, **FIXED, onNewQuery="continue").run(0, [rows("a")])
        assert count(out) == 1
        check_directory(open_filesystem(out))

    def test_new_names_leave_a_foreign_file_alone(self, out: str) -> None:
        Path(out).mkdir()
        Path(out, "part-0.json").write_text("{}")
        query(out, partFileName="{name}-{index:1}{ext}").run(0, [rows("a")])
        assert Path(out, "part-0.json").read_text() == "{}"
        assert len(visible(out)) == 2
