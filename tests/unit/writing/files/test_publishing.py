"""Publishing: markers, a hook, permissions."""

from __future__ import annotations

import json
import os
import re
import stat
from datetime import datetime, timezone
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

import ftfile
from ftfile.core.errors import ConfigError, StorageError, UserCodeError
from ftfile.storage.local import LocalFileSystem
from ftfile.testing.checker import check_directory
from ftfile.testing.context import ManualClock, current, open_filesystem, repeatable
from ftfile.testing.micro_batch import MicroBatch, spark_schema
from ftfile.writing.files.file_options import SinkConfig
from tests.unit.writing.files import user_code

if TYPE_CHECKING:
    from collections.abc import Iterator

COLUMNS = {"id": "long", "word": "string"}
USER_CODE = "tests.unit.writing.files.user_code"
HOUR_S = 3600.0


@pytest.fixture
def out(tmp_path: Path) -> str:
    return str(tmp_path / "out")


@pytest.fixture
def clock() -> Iterator[ManualClock]:
    clock = ManualClock()
    with repeatable(clock):
        yield clock


def query(out: str, **options: str) -> MicroBatch:
    return MicroBatch(out, COLUMNS, {"fileFormat": "json", **options})


def rows(*words: str | None) -> list[dict[str, Any]]:
    return [{"id": number, "word": word} for number, word in enumerate(words)]


def config(**options: str) -> SinkConfig:
    return SinkConfig.from_options({"path": "/x", "fileFormat": "json", **options}, spark_schema(COLUMNS))


def instant_ms(text: str) -> int:
    return int(datetime.fromisoformat(text).replace(tzinfo=timezone.utc).timestamp() * 1000)


class TestMarkers:
    def marked(self, out: str) -> dict[str, int]:
        check_directory(open_filesystem(out))
        found = {str(file.parent.relative_to(out)): file for file in Path(out).rglob("_SUCCESS")}
        return {directory: json.loads(file.read_text())["version"] for directory, file in sorted(found.items())}

    def undone(self, out: str) -> list[str]:
        return sorted(query(out).config().log(current()).refresh().tables.get("unmarkedDirectories", {}))

    def test_a_batch_write_leaves_one_in_the_directory(self, out: str) -> None:
        query(out, partitionBy="word", successFile="_SUCCESS").run_batch_write("job", [rows("a", "b")])
        assert self.marked(out) == {".": 0}
        assert self.undone(out) == []

    def test_none_without_the_option(self, out: str, clock: ManualClock) -> None:
        query(out).run_batch_write("job", [rows("a")])
        query(out, onNewQuery="continue").run(0, [rows("a")])
        clock.advance(1e6)
        query(out).run(1, [[]])
        assert self.marked(out) == {}
        assert self.undone(out) == []

    @pytest.mark.slow
    def test_a_directory_of_a_stream_is_done_after_a_delay_without_rows(self, out: str, clock: ManualClock) -> None:
        stream = query(out, partitionBy="word", successFile="_SUCCESS", successDelay="1h")
        stream.run(0, [rows("a", "b")])
        clock.advance(HOUR_S - 1)
        stream.run(1, [rows("b")])
        assert (self.marked(out), self.undone(out)) == ({}, ["word=a", "word=b"])
        clock.advance(1)
        stream.restart()
        stream.run(2, [[]])
        assert (self.marked(out), self.undone(out)) == ({"word=a": 1}, ["word=b"])
        clock.advance(HOUR_S)
        stream.run(3, [[]])
        assert (self.marked(out), self.undone(out)) == ({"word=a": 1, "word=b": 2}, [])

    def test_a_directory_that_this_very_batch_writes_into_is_not_done(self, out: str, clock: ManualClock) -> None:
        stream = query(out, successFile="_SUCCESS", successDelay="1h")
        stream.run(0, [rows("a")])
        clock.advance(2 * HOUR_S)
        stream.run(1, [rows("a")])
        assert self.marked(out) == {}
        clock.advance(HOUR_S)
        stream.run(2, [[]])
        assert self.marked(out) == {".": 1}

    def test_late_rows_make_it_done_once_more(self, out: str, clock: ManualClock) -> None:
        stream = query(out, successFile="_SUCCESS", successDelay="1h")
        for batch in range(0, 4, 2):
            stream.run(batch, [rows("a")])
            clock.advance(HOUR_S)
            stream.run(batch + 1, [[]])
        assert self.marked(out) == {".": 2}

    @pytest.mark.slow
    def test_a_directory_is_not_done_before_the_end_of_its_time(self, out: str) -> None:
        clock = ManualClock(instant_ms("2024-10-27T00:05"))
        with repeatable(clock):
            options = {"directoryPattern": "yyyy-MM-dd/HH", "timeZone": "Europe/Berlin", "partitionBy": "word"}
            stream = query(out, successFile="_SUCCESS", successDelay="10min", **options)
            stream.run(0, [rows("a")])
            clock.advance(100 * 60.0)  # 01:45 UTC: the hour from 2 to 3 comes twice, and ends at 02:00 UTC
            stream.run(1, [[]])
            assert self.marked(out) == {}
            clock.advance(24 * 60.0)
            stream.run(2, [[]])
            assert self.marked(out) == {}
            clock.advance(60.0)
            stream.run(3, [[]])
            assert self.marked(out) == {"word=a/2024-10-27/02": 2}

    @pytest.mark.parametrize(
        ("pattern", "directory", "end"),
        [
            ("yyyy-MM-dd--HH", "2024-03-31--01", "2024-03-31T01:00"),  # no hour from 2 to 3
            ("yyyy-MM-dd--HH", "2024-10-27--01", "2024-10-27T00:00"),
            ("yyyy-MM-dd--HH", "2024-10-27--02", "2024-10-27T02:00"),
            ("yyyy/MM/dd", "2024/02/28", "2024-02-28T23:00"),
            ("yyyy/MM/dd", "2024/12/31", "2024-12-31T23:00"),
            ("'m='yyyy-MM", "m=2024-12", "2024-12-31T23:00"),
            ("yyyy", "2024", "2024-12-31T23:00"),
            ("yyyyMMdd-HHmm", "20240601-1259", "2024-06-01T11:00"),
            ("yyyyMMdd-HHmm", "20241027-0230", "2024-10-27T01:31"),  # the second time
            ("yyyyMMddHHmmss", "20240601125959", "2024-06-01T11:00"),
        ],
    )
    def test_the_end_of_a_time(self, pattern: str, directory: str, end: str) -> None:
        directories = config(directoryPattern=pattern, timeZone="Europe/Berlin", partitionBy="word").directories
        found = directories.end_ms(f"word=x/{directory}/below")
        assert found is not None
        assert found == instant_ms(end)

    def test_a_directory_of_another_pattern_has_no_end(self) -> None:
        assert config(directoryPattern="yyyy-MM").directories.end_ms("a/b") is None
        assert config().directories.end_ms("") is None

    def test_a_directory_with_rows_in_open_files_is_not_done(self, out: str, clock: ManualClock) -> None:
        options = {"rolling": "policy", "inactivityInterval": "5h", "successFile": "_SUCCESS", "successDelay": "1h"}
        stream = query(out, **options)
        stream.run(0, [rows("a")])
        clock.advance(2 * HOUR_S)
        stream.run(1, [[]])
        assert (self.marked(out), self.undone(out)) == ({}, [""])
        ftfile.flush(out, context=current())
        stream.run(2, [[]])
        assert self.marked(out) == {".": 2}

    def test_one_that_cannot_be_written_is_tried_again(
        self, out: str, clock: ManualClock, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
    ) -> None:
        stream = query(out, successFile="_SUCCESS", successDelay="1h")
        stream.run(0, [rows("a")])
        clock.advance(HOUR_S)
        put = LocalFileSystem.put

        def failing(fs: LocalFileSystem, path: str, content: bytes) -> None:
            if path == "_SUCCESS":
                raise StorageError("put", path, "no")
            put(fs, path, content)

        with monkeypatch.context() as patched:
            patched.setattr(LocalFileSystem, "put", failing)
            stream.run(1, [[]])
        assert "the next commit tries again" in caplog.text
        assert (self.marked(out), self.undone(out)) == ({}, [""])
        stream.run(2, [[]])
        assert (self.marked(out), self.undone(out)) == ({".": 1}, [])

    def test_a_directory_that_somebody_took_away_gets_none(self, out: str, clock: ManualClock) -> None:
        stream = query(out, successFile="_SUCCESS", successDelay="1h", fileNameColumn="word")
        stream.run(0, [rows("a/x")])
        Path(out, "a").rename(f"{out}-away")
        clock.advance(HOUR_S)
        stream.run(1, [rows("b")])
        assert self.undone(out) == [""]

    @pytest.mark.parametrize("name", ["", "SUCCESS", "_", "_a/b", "_ftfile", "_x.json", "_a\n", "_a:b"])
    def test_a_name_that_readers_do_not_overlook(self, name: str) -> None:
        with pytest.raises(ConfigError, match="give a name that readers ignore"):
            config(successFile=name)

    def test_a_delay_without_a_name(self) -> None:
        with pytest.raises(ConfigError, match="successDelay is only for successFile"):
            config(successDelay="1h")


class TestHook:
    @pytest.fixture(autouse=True)
    def heard(self) -> Iterator[list[Any]]:
        user_code.HEARD.clear()
        yield user_code.HEARD
        user_code.HEARD.clear()

    def test_hears_of_every_finished_file(self, out: str, heard: list[Any]) -> None:
        stream = query(out, partitionBy="word", onPublish=f"{USER_CODE}:hear")
        stream.run(0, [rows("a", "b"), rows("a")])
        stream.run(1, [[]])
        stream.run(2, [rows("c")])
        files = ftfile.open(out).files()
        assert [part.path for part in heard] == [file.path for file in files]
        assert [(part.directory, part.rows, part.batch_id, part.version) for part in heard] == [
            ("word=a", 1, 0, 0),
            ("word=b", 1, 0, 0),
            ("word=a", 1, 0, 0),
            ("word=c", 1, 2, 2),
        ]
        assert {part.url for part in heard} == {f"file://{out}/{file.path}" for file in files}
        assert {part.query_id for part in heard} == {stream.query_id}

    def test_hears_again_of_a_batch_that_is_run_again(self, out: str, heard: list[Any]) -> None:
        stream = query(out, onPublish=f"{USER_CODE}:hear")
        stream.run(0, [rows("a")])
        stream.restart()
        assert stream.run(0, [rows("a")]).replayed
        assert len(heard) == 2
        assert heard[0] == heard[1]

    def test_hears_after_a_crash_between_record_and_hook(
        self, out: str, heard: list[Any], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        stream = query(out, onPublish=f"{USER_CODE}:hear")
        with monkeypatch.context() as patched:
            patched.setattr(
                "ftfile.writing.files.publishing.call_on_publish", lambda *_: (_ for _ in ()).throw(KeyboardInterrupt)
            )
            with pytest.raises(KeyboardInterrupt):
                stream.run(0, [rows("a")])
        assert heard == []
        stream.restart()
        assert stream.run(0, [rows("a")]).replayed
        assert [part.rows for part in heard] == [1]

    def test_that_fails_fails_the_batch_which_is_committed(self, out: str, heard: list[Any]) -> None:
        stream = query(out, onPublish=f"{USER_CODE}:hear_and_fail")
        with pytest.raises(UserCodeError, match=r"hear_and_fail' raised RuntimeError.*is committed in version 0"):
            stream.run(0, [rows("a")])
        stream.options = {**stream.options, "onPublish": f"{USER_CODE}:hear"}
        assert stream.run(0, [rows("a")]).replayed
        assert len(heard) == 2
        assert len(ftfile.open(out).files()) == 1

    def test_hears_of_batch_writes(self, out: str, heard: list[Any]) -> None:
        query(out, onPublish=f"{USER_CODE}:hear").run_batch_write("job", [rows("a")])
        assert [(part.query_id, part.batch_id) for part in heard] == [("job", 0)]

    @pytest.mark.slow
    def test_hears_of_files_that_stayed_open(self, out: str, heard: list[Any]) -> None:
        stream = query(out, rolling="policy", maxBatchesPerFile="2", onPublish=f"{USER_CODE}:hear")
        for batch in range(3):
            stream.run(batch, [rows("a")])
        assert [(part.rows, part.batch_id, part.version) for part in heard] == [(2, 1, 2)]
        ftfile.flush(out, code=[f"{USER_CODE}:hear"], context=current())
        assert [(part.rows, part.batch_id, part.version) for part in heard[1:]] == [(1, 2, 3)]

    def test_is_loaded_at_the_start(self) -> None:
        with pytest.raises(ConfigError, match="onPublish='nosuch:f' cannot be loaded"):
            config(onPublish="nosuch:f")
        with pytest.raises(ConfigError, match="is not a function"):
            config(onPublish=f"{USER_CODE}:HEARD")


@pytest.mark.usefixtures("usual_umask")
class TestPermissions:
    def modes(self, out: str) -> dict[str, int]:
        found: dict[str, set[int]] = {}
        for path in [Path(out), *Path(out).rglob("*")]:
            kind = "directory" if path.is_dir() else "data" if path.suffix == ".json" else "other"
            found.setdefault(kind, set()).add(stat.S_IMODE(path.stat().st_mode))
        assert all(len(modes) == 1 for modes in found.values()), found
        return {kind: modes.pop() for kind, modes in found.items()}

    def test_are_given_to_all_that_is_made(self, out: str) -> None:
        options = {"filePermission": "640", "directoryPermission": "0750", "partitionBy": "word"}
        query(out, **options).run(0, [rows("a")])
        assert self.modes(out) == {"directory": 0o750, "data": 0o640, "other": 0o640}

    def test_are_given_to_files_that_stayed_open(self, out: str) -> None:
        options = {"filePermission": "600", "directoryPermission": "700", "rolling": "policy", "partitionBy": "word"}
        query(out, **options).run(0, [rows("a")])
        ftfile.flush(out, context=current())
        assert self.modes(out) == {"directory": 0o700, "data": 0o600, "other": 0o600}

    def test_less_what_the_umask_takes_away(self, out: str) -> None:
        os.umask(0o027)
        query(out, filePermission="666", directoryPermission="777").run(0, [rows("a")])
        assert self.modes(out) == {"directory": 0o750, "data": 0o640, "other": 0o640}

    def test_without_options_the_umask_decides(self, out: str) -> None:
        query(out).run(0, [rows("a")])
        assert self.modes(out) == {"directory": 0o755, "data": 0o644, "other": 0o644}

    @pytest.mark.parametrize(
        ("options", "text"),
        [
            ({"filePermission": "rw-r-----"}, "three octal digits, such as `640`"),
            ({"filePermission": "888"}, "three octal digits"),
            ({"filePermission": "64"}, "three octal digits"),
            ({"directoryPermission": "2750"}, "three octal digits"),
            ({"filePermission": "044"}, "filePermission=0044: the sink needs at least 0600"),
            ({"directoryPermission": "600"}, "directoryPermission=0600: the sink needs at least 0700"),
            (
                {"path": "memory://x/y", "filePermission": "640", "directoryPermission": "750"},
                "filePermission and directoryPermission: the file system 'memory' has no permissions",
            ),
        ],
    )
    def test_that_are_refused(self, options: dict[str, str], text: str) -> None:
        storage = open_filesystem(options.get("path", "/x")).capabilities
        with pytest.raises(ConfigError, match=re.escape(text)):
            config(**options).for_storage(storage)

    def test_settings_of_hdfs_are_recorded_for_maintenance(self) -> None:
        given = {"storage.replication": "2", "storage.blockSize": "64KiB", "storage.user": "me"}
        storage = config(path="webhdfs://127.0.0.1:1/x", **given).common.storage
        assert storage.to_json()["storage"] == {"replication": "2", "blockSize": "65536"}
        assert dict(storage.settings).items() >= {"replication": "2", "blockSize": "65536", "user": "me"}.items()

    @pytest.mark.parametrize(
        ("given", "text"),
        [
            ({"storage.replication": "2"}, "the driver of 'file' has no setting storage.replication"),
            ({"storage.blockSize": "many"}, "the driver of 'file' has no setting storage.blocksize"),
            ({"path": "webhdfs://127.0.0.1:1/x", "storage.blockSize": "1000"}, "storage.blockSize='1000': it must be"),
            ({"path": "webhdfs://127.0.0.1:1/x", "storage.replication": "0"}, "storage.replication='0': it must be"),
        ],
    )
    def test_settings_that_a_driver_refuses(self, out: str, given: dict[str, str], text: str) -> None:
        with pytest.raises(ConfigError, match=re.escape(text)):
            query(given.pop("path", out), **given).pickled_plan()

    def test_a_driver_without_them_takes_no_such_setting(self) -> None:
        with pytest.raises(ConfigError, match=r"no setting storage\.filePermission"):
            open_filesystem("memory://x/y", settings={"filePermission": "640"})
